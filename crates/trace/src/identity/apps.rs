//! Finds the application of a process by its control group, its namespaces or its Android user.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The kind of an application, which is also how it was recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, JsonSchema, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AppKind {
    /// A service or scope of systemd, or another control group.
    Unit,
    /// Docker, Podman, LXC, Kubernetes; or a PID or mount namespace of its own.
    Container,
    /// Android, by the user id.
    Package,
    /// None of these: the process itself.
    Process,
    Kernel,
}

/// An application.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, JsonSchema, Deserialize)]
pub struct App {
    pub kind: AppKind,
    pub name: String,
}

impl fmt::Display for App {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            AppKind::Container => write!(f, "container {}", self.name),
            _ => f.write_str(&self.name),
        }
    }
}

/// Properties of a process that identify its application.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Signs<'a> {
    pub cgroup: &'a str,
    pub mount_namespace: u64,
    pub pid_namespace: u64,
    pub package: Option<&'a str>,
    /// The namespace of process 1, or else the most frequent one.
    pub usual_mount_namespace: u64,
    pub usual_pid_namespace: u64,
}

/// Container ids have 64 hexadecimal digits; 12 of them are shown, as in docker ps.
fn short(id: &str) -> &str {
    let hexadecimal = id.len() == 64 && id.bytes().all(|b| b.is_ascii_hexdigit());
    if hexadecimal { &id[..12] } else { id }
}

/// Whether a name is an id that says nothing to a reader: of a container, a virtual machine or a job.
fn is_id(name: &str) -> bool {
    let digits = name.bytes().filter(u8::is_ascii_hexdigit).count();
    digits >= 12 && name.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-') && name.bytes().any(|b| b.is_ascii_digit())
}

impl App {
    /// Whether it is a container whose name is an id. A namespace's number is none: the kernel uses it again for another container,
    /// which has another first process.
    pub(super) fn is_nameless(&self) -> bool {
        self.kind == AppKind::Container && is_id(&self.name)
    }

    /// Whether a unit's name holds this application's id.
    pub(super) fn has_id(&self, wanted: &str) -> bool {
        self.kind == AppKind::Unit && application_id(&self.name).as_deref() == Some(wanted)
    }
}

/// systemd writes a dash of a machine's name as `\x2d` (systemd.unit(5)).
fn unescaped(name: &str) -> String {
    name.replace("\\x2d", "-")
}

/// The id in the name of a container's control group, which container managers write in hexadecimal. Other units begin with the
/// same words (`docker-prune.service`, `crio-wipe.service`, `libpod-conmon-ID.scope`).
fn container_id(part: &str) -> Option<&str> {
    let scope = part.strip_suffix(".scope").unwrap_or(part);
    let after_prefix = ["docker-", "libpod-", "cri-containerd-", "crio-", "nerdctl-"]
        .iter()
        .find_map(|prefix| scope.strip_prefix(prefix))
        .filter(|id| id.len() >= 12 && id.bytes().all(|b| b.is_ascii_hexdigit()));
    // Without a prefix it is an id only where it is as long as one.
    after_prefix.map(short).or_else(|| Some(short(part)).filter(|id| id.len() < part.len()))
}

/// The container in a control group's path. docs/reference/applications.md has the forms and where each comes from.
pub(super) fn container(cgroup: &str) -> Option<&str> {
    let mut before = "";
    for part in cgroup.split('/').filter(|part| !part.is_empty()) {
        let after = |prefix: &str, end: &str| part.strip_prefix(prefix)?.strip_suffix(end);
        if let Some(name) = after("machine-", ".scope").or_else(|| after("systemd-nspawn@", ".service")) {
            return Some(name);
        }
        if let Some(name) = part.strip_prefix("lxc.payload.").filter(|name| !name.is_empty()) {
            return Some(name);
        }
        if matches!(before, "docker" | "lxc" | "lxc.payload") {
            return Some(short(part));
        }
        // A slice, a prefix and an id that runc took for a path: `kubepods-pod1.slice:cri-containerd:ID`.
        let last = part.rsplit_once(':').filter(|(front, _)| front.contains(".slice:")).map_or(part, |(_, id)| id);
        if let Some(id) = container_id(last) {
            return Some(id);
        }
        before = part;
    }
    None
}

/// The last service or scope in a control group's path, else its last part. The flag says whether a namespace tells more: for a user's
/// session, or for a group that is not a unit.
fn unit(cgroup: &str) -> Option<(&str, bool)> {
    let parts = || cgroup.split('/').filter(|part| !part.is_empty());
    let named = parts().rev().find(|part| {
        [".service", ".scope", ".socket", ".mount"].iter().any(|end| part.ends_with(end)) && *part != "init.scope"
    });
    if let Some(name) = named {
        return Some((name, name.starts_with("session-") || name.starts_with("user@")));
    }
    match *parts().collect::<Vec<_>>() {
        // OpenWrt's procd: most instances have the name instance1.
        ["services", service, _] => Some((service, true)),
        // Android: the process's own name says more.
        [.., user, process] if user.starts_with("uid_") && process.starts_with("pid_") => None,
        [.., last] if !last.ends_with(".slice") && last != "init.scope" && !is_id(last) => Some((last, true)),
        _ => None,
    }
}

/// The application's id in a unit's name: `org.gnome.Nautilus` in `app-gnome-org.gnome.Nautilus-4321.scope`, `firefox` in
/// `snap.firefox.firefox-UUID.scope`. Its last part differs at each start.
fn application_id(unit: &str) -> Option<String> {
    let (stem, is_scope) = match (unit.strip_suffix(".scope"), unit.strip_suffix(".service")) {
        (Some(stem), _) => (stem, true),
        (None, stem) => (stem?, false),
    };
    if let Some(snap) = stem.strip_prefix("snap.") {
        // Older versions of snapd have a UUID before the name.
        let is_uuid = |part: &str| part.len() == 36 && part.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-');
        return snap.split('.').find(|part| !is_uuid(part)).filter(|name| !name.is_empty()).map(str::to_owned);
    }
    let without_instance = stem.split('@').next().unwrap_or(stem);
    if let Some((_, name)) = without_instance.strip_prefix("dbus-:").and_then(|bus| bus.split_once('-')) {
        return Some(unescaped(name));
    }
    let parts: Vec<&str> = without_instance.strip_prefix("app-")?.split('-').collect();
    let is_random =
        |part: &str| part.bytes().all(|b| b.is_ascii_alphanumeric()) && part.bytes().any(|b| b.is_ascii_digit());
    match (is_scope, &*parts) {
        (true, [id, random] | [_, id, random]) if is_random(random) => Some(unescaped(id)),
        (_, [id] | [_, id]) => Some(unescaped(id)),
        // A dash of an id is written as \x2d: with more parts it is not known which of them are the id.
        _ => None,
    }
}

/// `None`: the process is its own application.
pub(super) fn app_of(signs: &Signs<'_>) -> Option<App> {
    let app = |kind, name: &str| Some(App { kind, name: name.to_owned() });
    if let Some(name) = container(signs.cgroup) {
        return app(AppKind::Container, &unescaped(name));
    }
    if let Some(package) = signs.package {
        return app(AppKind::Package, package);
    }
    let unit = unit(signs.cgroup);
    if let Some((name, false)) = unit {
        return app(AppKind::Unit, name);
    }
    let another = |own: u64, usual: u64| own != 0 && usual != 0 && own != usual;
    if another(signs.pid_namespace, signs.usual_pid_namespace) {
        return app(AppKind::Container, &format!("pid:[{}]", signs.pid_namespace));
    }
    if another(signs.mount_namespace, signs.usual_mount_namespace) {
        return app(AppKind::Container, &format!("mnt:[{}]", signs.mount_namespace));
    }
    unit.and_then(|(name, _)| app(AppKind::Unit, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_groups_name_applications() {
        let id = "4".repeat(64);
        let of = |cgroup: &str| app_of(&Signs { cgroup, ..Signs::default() }).map(|app| app.to_string());
        for (cgroup, want) in [
            ("/system.slice/ssh.service", Some("ssh.service")),
            ("/user.slice/user-1000.slice/user@1000.service/app.slice/app-vlc-77.scope", Some("app-vlc-77.scope")),
            ("/user.slice/user-1000.slice/session-3.scope", Some("session-3.scope")),
            ("/init.scope", None),
            ("/", None),
            ("", None),
            ("/system.slice", None),
            ("/batch/job7", Some("job7")),
            ("/lxc/web", Some("container web")),
            ("/lxc.payload.web/system.slice/nginx.service", Some("container web")),
            ("/machine.slice/machine-deb.scope/payload", Some("container deb")),
            ("/machine.slice/machine-qemu\\x2d1\\x2dweb.scope/libvirt", Some("container qemu-1-web")),
            // Of an id alone, the process's own name says more.
            ("/sandbox/e3dbc02ee854bc394f38785e6ae3aa66", None),
            ("/jobs/0e984725-c51c-4bf4-9960-e1c80e27aba0", None),
            ("/jobs/facade", Some("facade")),
            // systemd's own template, as a service; what runs in it is not a service of the host.
            ("/machine.slice/systemd-nspawn@web.service/payload/system.slice/nginx.service", Some("container web")),
            ("/machine.slice/systemd-nspawn@web\\x2d2.service/supervisor", Some("container web-2")),
            (
                "/user.slice/user-1000.slice/user@1000.service/machine.slice/systemd-nspawn@deb.service/payload",
                Some("container deb"),
            ),
            ("/lxc.payload/web/init.scope", Some("container web")),
            ("/lxc/101/ns/system.slice/cron.service", Some("container 101")),
            ("/lxc.monitor.web", Some("lxc.monitor.web")),
            ("/docker/buildkit/n4eu0udvbz9vfzjy71jkvgkwh", Some("container buildkit")),
            // Units of container managers are no containers.
            ("/system.slice/docker-prune.service", Some("docker-prune.service")),
            ("/system.slice/crio-wipe.service", Some("crio-wipe.service")),
            ("/system.slice/docker.service", Some("docker.service")),
            ("/libpod_parent/conmon", Some("conmon")),
            // procd, OpenRC, Android.
            ("/services/dropbear/instance1", Some("dropbear")),
            ("/openrc.sshd", Some("openrc.sshd")),
            ("/uid_1000/pid_812", None),
            ("/apps/uid_10123/pid_4567", None),
            ("/system.slice/snap.lxd.daemon.service", Some("snap.lxd.daemon.service")),
        ] {
            assert_eq!(of(cgroup).as_deref(), want, "{cgroup}");
        }
        for cgroup in [
            format!("/docker/{id}"),
            format!("/system.slice/docker-{id}.scope"),
            format!("/kubepods/burstable/pod12ab/{id}"),
            format!("/kubepods.slice/kubepods-pod1.slice/cri-containerd-{id}.scope"),
            format!("/machine.slice/libpod-{id}.scope/container"),
            format!("/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{id}.scope/container"),
            format!("/machine.slice/machine-libpod_pod_{pod}.slice/libpod-{id}.scope", pod = "7".repeat(64)),
            format!("/libpod_parent/libpod-{id}/ctr"),
            format!("/kubepods/burstable/pod12ab/crio-{id}"),
            format!(
                "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod1.slice/crio-{id}.scope/container"
            ),
            format!("/kubepods.slice/kubepods-pod1.slice/docker-{id}.scope"),
            format!("/system.slice/containerd.service/kubepods-burstable-pod1_2.slice:cri-containerd:{id}"),
            format!("/system.slice/nerdctl-{id}.scope"),
            format!("/default/{id}"),
            format!("/ecs/6f1e0a4d/{id}"),
        ] {
            assert_eq!(of(&cgroup).as_deref(), Some("container 444444444444"), "{cgroup}");
        }
        // Quadlet: the container runs in its service, whose name says more than its id.
        let quadlet = format!("/system.slice/jellyfin.service/libpod-payload-{id}");
        assert_eq!(of(&quadlet).as_deref(), Some("jellyfin.service"));
        for monitor in [format!("libpod-conmon-{id}.scope"), format!("crio-conmon-{id}.scope")] {
            assert_eq!(of(&format!("/machine.slice/{monitor}")), Some(monitor));
        }
    }

    #[test]
    fn units_of_desktops_hold_the_id_of_their_application() {
        for (unit, id) in [
            ("app-vlc-77.scope", Some("vlc")),
            ("app-gnome-org.gnome.Nautilus-4321.scope", Some("org.gnome.Nautilus")),
            ("app-flatpak-org.mozilla.firefox-2891.scope", Some("org.mozilla.firefox")),
            ("app-gnome-google\\x2dchrome-2522777.scope", Some("google-chrome")),
            ("app-flatpak-com.valvesoftware.Steam.scope", Some("com.valvesoftware.Steam")),
            ("app-org.kde.dolphin@5c2e8d.service", Some("org.kde.dolphin")),
            ("app-gnome\\x2dkeyring\\x2dpkcs11@autostart.service", Some("gnome-keyring-pkcs11")),
            ("dbus-:1.2-org.gnome.Nautilus@0.service", Some("org.gnome.Nautilus")),
            ("snap.firefox.firefox-4706fe54-7802-4808-aa7e-ae8b567239e0.scope", Some("firefox")),
            ("snap.chromium.chromium.82bbbfd7-c79b-4b57-b425-e543631ca054.scope", Some("chromium")),
            ("snap.82bbbfd7-c79b-4b57-b425-e543631ca054.chromium.chromium.scope", Some("chromium")),
            ("snap.lxd.daemon.service", Some("lxd")),
            ("app-gnome-yandex-browser-1.scope", None),
            ("session-3.scope", None),
            ("ssh.service", None),
        ] {
            assert_eq!(application_id(unit).as_deref(), id, "{unit}");
        }
    }

    #[test]
    fn namespaces_and_packages_name_what_no_group_does() {
        let usual = Signs { usual_mount_namespace: 1, usual_pid_namespace: 2, ..Signs::default() };
        let name = |signs: Signs<'_>| app_of(&signs).map(|app| app.to_string());
        assert_eq!(name(Signs { mount_namespace: 1, pid_namespace: 2, ..usual }), None);
        assert_eq!(name(Signs { mount_namespace: 7, pid_namespace: 2, ..usual }).as_deref(), Some("container mnt:[7]"));
        assert_eq!(name(Signs { mount_namespace: 7, pid_namespace: 9, ..usual }).as_deref(), Some("container pid:[9]"));
        // A service with a /tmp of its own is that service.
        let service = Signs { cgroup: "/system.slice/a.service", mount_namespace: 7, ..usual };
        assert_eq!(name(service).as_deref(), Some("a.service"));
        let group = Signs { cgroup: "/batch/job7", pid_namespace: 7, ..usual };
        assert_eq!(name(group).as_deref(), Some("container pid:[7]"));
        let session = Signs { cgroup: "/user.slice/session-3.scope", pid_namespace: 7, ..usual };
        assert_eq!(name(session).as_deref(), Some("container pid:[7]"));
        assert_eq!(name(Signs { package: Some("org.videolan.vlc"), ..usual }).as_deref(), Some("org.videolan.vlc"));
    }
}
