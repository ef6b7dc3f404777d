//! The groups of a boot study, and the plan of each board.

use super::definition::Boots;
use crate::definition::Filesystem;

/// One root file system with one kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BootSpec {
    pub board: String,
    pub kernel: String,
    pub filesystem: Filesystem,
    /// Size of its image, bytes; 0: the size of its contents.
    pub image_bytes: u64,
    pub host_keys: Vec<String>,
    pub after_prompt_s: u64,
}

impl BootSpec {
    /// `apf27-6.1-jffs2`
    pub fn id(&self) -> String {
        format!("{}-{}-{}", self.board, self.kernel, self.filesystem.as_str())
    }
}

pub(super) fn groups(boots: &Boots) -> Vec<BootSpec> {
    let of = |kernel: &String, root: &super::Root| BootSpec {
        board: boots.board.clone(),
        kernel: kernel.clone(),
        filesystem: root.filesystem,
        image_bytes: root.image.map_or(0, |bytes| bytes.0),
        host_keys: boots.host_keys.clone(),
        after_prompt_s: boots.after_prompt_s,
    };
    boots.kernel.iter().flat_map(|kernel| boots.root.iter().map(move |root| of(kernel, root))).collect()
}

/// The two boots, by name.
pub(super) const BOOTS: [&str; 2] = ["first", "second"];
/// The step that makes the image; it prints the image's properties.
pub(super) const STEP_MAKE: &str = "make-image";
/// The packages' files for the root file system, in the boot image.
pub(super) const ROOTFS: &str = "rootfs";
/// The tools that make the image; they are not in the root file system.
pub(super) const TOOLS: &str = "tools";
pub(super) const MAKE_SH: &str = "/flashscope/make.sh";
/// Source of the root file system's scripts.
pub(super) const INIT_D: &str = "/flashscope/init.d";

/// The step that runs the init scripts until the login prompt.
pub(super) fn init_step(boot: &str) -> String {
    format!("init-{boot}")
}

/// The plan's phase for a boot, from before its mount to the end of recording.
pub(super) fn phase(boot: &str) -> String {
    format!("{boot} boot")
}

/// Makes and flashes the image; this is not recorded.
pub(super) fn flash(spec: &BootSpec) -> Vec<String> {
    let filesystem = spec.filesystem.as_str();
    let mut make = format!("run {STEP_MAKE} /{ROOTFS}/bin/busybox sh {MAKE_SH} {filesystem} {}", spec.image_bytes);
    spec.host_keys.iter().for_each(|key| make += &format!(" {key}"));
    vec![
        "device-wait /dev/mtd1 5000".to_owned(),
        make,
        "nand-write 1 /tmp/image".to_owned(),
        format!("run tidy /{ROOTFS}/bin/busybox rm -rf /tmp/image /{TOOLS} /{ROOTFS}"),
    ]
}

/// Both boots under one recorder: the work of the kernel and init on the root file system, and of a shutdown.
pub(super) fn boots(spec: &BootSpec) -> Vec<String> {
    let ubi = spec.filesystem == Filesystem::Ubifs;
    let (mount, thread) = match spec.filesystem {
        Filesystem::Ubifs => ("mount ubi0:root /mnt ubifs -", "ubi_bgt"),
        _ => ("mount mtd1 /mnt jffs2 -", "jffs2_gcd"),
    };
    let chroot = "/mnt/bin/busybox chroot /mnt";
    let mut lines = vec!["record-start --events flash".to_owned()];
    for boot in BOOTS {
        lines.push("write /proc/sys/vm/drop_caches 3".to_owned());
        lines.push(format!("phase-begin {}", phase(boot).replace(' ', "%20")));
        if ubi {
            lines.extend(["ubi-attach 1", "device-wait /dev/ubi0_0 5000"].map(str::to_owned));
        }
        lines.push(mount.to_owned());
        for (kind, dir, options) in
            [("proc", "proc", "-"), ("devtmpfs", "dev", "-"), ("tmpfs", "tmp", "-"), ("tmpfs", "run", "-")]
        {
            lines.push(format!("mount {kind} /mnt/{dir} {kind} {options}"));
        }
        lines.push(format!("run {} {chroot} /etc/init.d/rcS", init_step(boot)));
        lines.push(format!("sleep {}", spec.after_prompt_s * 1000));
        lines.push(format!("settle {thread} 1000 3600000"));
        lines.push(format!("phase-end {}", phase(boot).replace(' ', "%20")));
        lines.push(format!("run stop-{boot} {chroot} /etc/init.d/rcK"));
        lines.extend(["run", "tmp", "dev", "proc"].map(|dir| format!("umount /mnt/{dir}")));
        lines.push("umount /mnt".to_owned());
        if ubi {
            lines.push("ubi-detach 0".to_owned());
        }
    }
    lines.push("record-stop".to_owned());
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::boot::BootStudy;

    #[test]
    fn a_root_file_system_is_flashed_unseen_and_booted_twice_under_one_recorder() {
        let text = include_str!("../../../../studies/boot.toml");
        let specs = groups(&BootStudy::parse("boot.toml", text).unwrap().definition.boot);
        let ids: Vec<String> = specs.iter().map(BootSpec::id).collect();
        assert_eq!(ids, ["apf27-6.1-jffs2", "apf27-6.1-ubifs"]);
        for spec in &specs {
            let flash = flash(spec);
            assert!(
                flash[1].ends_with(&format!("{} {} rsa", spec.filesystem.as_str(), spec.image_bytes)),
                "{}",
                flash[1]
            );
            assert!(flash.iter().all(|line| !line.starts_with("record-")));
            let lines = boots(spec);
            let count = |head: &str| lines.iter().filter(|line| line.starts_with(head)).count();
            let ubi = usize::from(spec.filesystem == Filesystem::Ubifs);
            assert_eq!((count("ubi-attach 1"), count("ubi-detach 0")), (2 * ubi, 2 * ubi));
            assert_eq!((count("record-start"), count("record-stop")), (1, 1));
            for boot in BOOTS {
                let at = |text: String| lines.iter().position(|line| line.starts_with(&text)).unwrap();
                let (begin, init) = (at(format!("phase-begin {boot}%20boot")), at(format!("run init-{boot} ")));
                assert!(begin < init && init < at(format!("phase-end {boot}%20boot")));
                assert!(lines[begin..init].iter().any(|line| line.starts_with("mount") && line.contains(" /mnt ")));
            }
            assert_eq!(lines.last().unwrap(), "record-stop");
        }
    }
}
