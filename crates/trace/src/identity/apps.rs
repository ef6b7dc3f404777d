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
}

/// systemd writes a dash of a machine's name as `\x2d` (systemd.unit(5)).
fn unescaped(name: &str) -> String {
    name.replace("\\x2d", "-")
}

/// The container in a control group's path, which has one of these forms:
///
/// - `/docker/ID`, `/system.slice/docker-ID.scope`, `/kubepods/…/ID`, `…/cri-containerd-ID.scope`, `…/crio-ID.scope`
/// - `/machine.slice/libpod-ID.scope`, `/user.slice/…/libpod-ID.scope/container`
/// - `/lxc/NAME`, `/lxc.payload.NAME`, `/machine.slice/machine-NAME.scope` (systemd-nspawn), `lxc.payload.NAME`
pub(super) fn container(cgroup: &str) -> Option<&str> {
    let mut before = "";
    for part in cgroup.split('/') {
        let scope = part.strip_suffix(".scope").unwrap_or(part);
        for prefix in ["docker-", "libpod-", "cri-containerd-", "crio-", "lxc.payload."] {
            if let Some(id) = scope.strip_prefix(prefix).filter(|id| !id.is_empty() && !id.starts_with("conmon")) {
                return Some(short(id));
            }
        }
        if let Some(name) = scope.strip_prefix("machine-").filter(|_| part.ends_with(".scope")) {
            return Some(name);
        }
        if matches!(before, "docker" | "lxc") && !part.is_empty() {
            return Some(short(part));
        }
        if part.len() == 64 && short(part).len() == 12 {
            return Some(short(part));
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
    match named {
        Some(name) => Some((name, name.starts_with("session-") || name.starts_with("user@"))),
        None => parts()
            .next_back()
            .filter(|part| !part.ends_with(".slice") && *part != "init.scope" && !is_id(part))
            .map(|part| (part, true)),
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
        ] {
            assert_eq!(of(cgroup).as_deref(), want, "{cgroup}");
        }
        for cgroup in [
            format!("/docker/{id}"),
            format!("/system.slice/docker-{id}.scope"),
            format!("/kubepods/burstable/pod12ab/{id}"),
            format!("/kubepods.slice/kubepods-pod1.slice/cri-containerd-{id}.scope"),
            format!("/machine.slice/libpod-{id}.scope/container"),
        ] {
            assert_eq!(of(&cgroup).as_deref(), Some("container 444444444444"), "{cgroup}");
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
