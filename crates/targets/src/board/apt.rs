//! A private apt state for each suite and architecture, without root and without touching the host's dpkg.
//!
//! Each use works on its own copy (hard links to the cached index), and publishes it by rename after an update. So concurrent fetches do
//! not wait for each other, and a killed one leaves the cache intact.
//!
//! The package source comes from the host's own configuration, read at each use: the mirror from its sources, proxies, certificates and so
//! on from its `Acquire` options. Hooks and pins of the host are not used.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use flashscope_output::hex;
use sha2::{Digest, Sha256};

use super::stanza::{self, Stanza};
use crate::error::Error;
use crate::process;
use crate::progress::Progress;
use crate::scratch::{ScratchDir, cache_dir, remove_tree};

/// The Debian archive's keys, as its package debian-archive-keyring installs them (bookworm, trixie).
const KEYRINGS: [&str; 2] =
    ["/usr/share/keyrings/debian-archive-keyring.pgp", "/usr/share/keyrings/debian-archive-keyring.gpg"];

pub(super) struct Apt {
    state: ScratchDir,
    suite: String,
    arch: String,
    /// The text of its sources.list.
    source: String,
}

/// A package file to download, as apt lists it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Deb {
    pub file: String,
    pub size: u64,
}

impl Apt {
    /// Opens the suite's index. It is updated if `update` is set or no index is cached. If the update fails, a cached index is used, with a
    /// message to `progress`.
    pub(super) fn open(suite: &str, arch: &str, update: bool, progress: &dyn Progress) -> Result<Apt, Error> {
        let source = source_lines(&host_source()?, "deb", suite);
        let apt = Apt { state: ScratchDir::new("apt")?, suite: suite.to_owned(), arch: arch.to_owned(), source };
        let cached = apt.seed()?;
        apt.configure()?;
        if update || !cached {
            match apt.update(progress) {
                Ok(()) => {}
                Err(error) if cached => {
                    progress.step(&format!("{error}; using the index of an earlier fetch"));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(apt)
    }

    /// Like [`Apt::open`], for the suite's source packages.
    pub(super) fn open_sources(suite: &str, arch: &str, progress: &dyn Progress) -> Result<Apt, Error> {
        let source = source_lines(&host_source()?, "deb-src", suite);
        let apt = Apt { state: ScratchDir::new("apt")?, suite: suite.to_owned(), arch: arch.to_owned(), source };
        apt.seed()?;
        apt.configure()?;
        apt.update(progress)?;
        Ok(apt)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.state.path().join(name)
    }

    fn published(&self) -> Result<PathBuf, Error> {
        // apt cannot use another mirror's index, so each mirror has its own directory.
        let mirror = &hex(&Sha256::digest(&self.source))[..16];
        Ok(cache_dir()?.join("apt").join(&self.suite).join(&self.arch).join(mirror))
    }

    /// Links the cached index into the private state. Returns whether there was one.
    fn seed(&self) -> Result<bool, Error> {
        for dir in ["lists/partial", "cache/archives/partial", "none"] {
            let path = self.path(dir);
            std::fs::create_dir_all(&path).map_err(|e| Error::io(&path, e))?;
        }
        let mut found = false;
        for entry in std::fs::read_dir(self.published()?).into_iter().flatten().flatten() {
            let name = entry.file_name();
            if entry.file_type().is_ok_and(|kind| kind.is_file())
                && name != "lock"
                && std::fs::hard_link(entry.path(), self.path("lists").join(&name)).is_ok()
            {
                found |= name.to_string_lossy().contains("_Packages");
            }
        }
        Ok(found)
    }

    fn configure(&self) -> Result<(), Error> {
        let acquire = process::output(Command::new("apt-config").arg("dump"), "apt")?;
        let mut conf = acquire_options(&String::from_utf8_lossy(&acquire.stdout));
        let dir = |name: &str| self.path(name).display().to_string();
        // The host's parts directory is not read, because its hooks would touch the host's cache: hence the copy above.
        for (option, value) in [
            ("Dir::Etc::main", dir("none/main")),
            ("Dir::Etc::parts", dir("none")),
            ("Dir::Etc::sourcelist", dir("sources.list")),
            ("Dir::Etc::sourceparts", dir("none")),
            ("Dir::Etc::preferences", dir("none/preferences")),
            ("Dir::Etc::preferencesparts", dir("none")),
            ("Dir::State", dir("")),
            ("Dir::State::Lists", dir("lists")),
            ("Dir::State::status", dir("status")),
            ("Dir::State::extended_states", dir("extended_states")),
            ("Dir::Cache", dir("cache")),
            ("Dir::Log", dir("none")),
            ("APT::Architecture", self.arch.clone()),
            ("APT::Sandbox::User", String::new()),
            ("APT::Update::Error-Mode", "any".to_owned()),
            ("APT::Install-Recommends", "false".to_owned()),
            ("Acquire::Languages", "none".to_owned()),
            ("Acquire::GzipIndexes", "true".to_owned()),
            ("Acquire::IndexTargets::deb::Translations::DefaultEnabled", "false".to_owned()),
        ] {
            writeln!(conf, "{option} \"{value}\";").expect("a String takes it");
        }
        if base_of(&self.suite).is_some() {
            // Otherwise backports would have the lowest priority.
            writeln!(conf, "APT::Default-Release \"{}\";", self.suite).expect("a String takes it");
        }
        writeln!(conf, "APT::Architectures {{\"{}\";}};", self.arch).expect("a String takes it");
        for (name, text) in [("apt.conf", conf.as_str()), ("sources.list", self.source.as_str()), ("status", "")] {
            let path = self.path(name);
            std::fs::write(&path, text).map_err(|e| Error::io(&path, e))?;
        }
        Ok(())
    }

    fn command(&self, program: &str) -> Command {
        // If the fetch is killed, apt must end too: nothing else would end it.
        let mut command = process::dies_with_us("TERM", program.as_ref());
        command.env("APT_CONFIG", self.path("apt.conf")).env("LC_ALL", "C.UTF-8");
        command
    }

    /// Fetches the suite's index and puts it in the cache.
    pub(super) fn update(&self, progress: &dyn Progress) -> Result<(), Error> {
        progress.step(&format!("updating the package index of {} ({})", self.suite, self.arch));
        let mut command = self.command("apt-get");
        command.args(["-q", "update"]);
        let unavailable = |problem: String| Error::IndexUnavailable { suite: self.suite.clone(), problem };
        watched(command, &self.path("lists"), None, progress).map_err(unavailable)?;

        let copy = ScratchDir::new("lists")?;
        for entry in std::fs::read_dir(self.path("lists")).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_file()) && entry.file_name() != "lock" {
                let to = copy.path().join(entry.file_name());
                std::fs::hard_link(entry.path(), &to).map_err(|e| Error::io(&to, e))?;
            }
        }
        // A concurrent fetch may publish at the same time. The last one wins; either index is complete.
        let published = self.published()?;
        let aside = ScratchDir::new("old-lists")?;
        std::fs::rename(&published, aside.path().join("lists")).ok();
        copy.publish(&published).ok();
        Ok(())
    }

    /// A package's entry in the index.
    pub(super) fn show(&self, package: &str) -> Result<Option<Stanza>, Error> {
        let mut command = self.command("apt-cache");
        command.args(["show", "--no-all-versions", "--", package]);
        let output = process::output(&mut command, "apt")?;
        Ok(stanza::parse(&String::from_utf8_lossy(&output.stdout)).into_iter().find(|s| s.package == package))
    }

    /// Entries of packages in the index, in any order.
    pub(super) fn show_all(&self, packages: &[String]) -> Result<Vec<Stanza>, Error> {
        let mut command = self.command("apt-cache");
        command.args(["show", "--no-all-versions", "--"]).args(packages);
        let output = process::output(&mut command, "apt")?;
        let stanzas = stanza::parse(&String::from_utf8_lossy(&output.stdout));
        match packages.iter().find(|name| !stanzas.iter().any(|stanza| stanza.package == **name)) {
            Some(name) => {
                let problem = "apt installs it and does not show it".to_owned();
                Err(Error::Download { package: name.clone(), problem })
            }
            None => Ok(stanzas),
        }
    }

    /// Names of the packages that are installed with these on an empty system, without Recommends.
    pub(super) fn closure(&self, packages: &[String]) -> Result<Vec<String>, Error> {
        let mut command = self.command("apt-get");
        command.args(["-s", "-q", "-y", "install", "--"]).args(packages);
        let output = process::output(&mut command, "apt")?;
        if !output.status.success() {
            return Err(self.no_such(packages, &String::from_utf8_lossy(&output.stderr)));
        }
        Ok(simulated(&String::from_utf8_lossy(&output.stdout)))
    }

    fn no_such(&self, packages: &[String], stderr: &str) -> Error {
        // "E: Unable to locate package nosuch"
        let located = stderr.lines().find_map(|line| line.strip_prefix("E: Unable to locate package "));
        match located {
            Some(package) => Error::NoSuchPackage { package: package.trim().to_owned(), suite: self.suite.clone() },
            None => Error::Download { package: packages.join(" "), problem: last_error(stderr) },
        }
    }

    /// Downloads packages (`name=version`) to a directory; apt checks their hashes.
    pub(super) fn download(&self, packages: &[String], dir: &Path, progress: &dyn Progress) -> Result<Vec<Deb>, Error> {
        let failed = |problem: String| Error::Download { package: packages.join(" "), problem };
        let mut command = self.command("apt-get");
        command.args(["-q", "download", "--print-uris", "--"]).args(packages).current_dir(dir);
        let output = process::output(&mut command, "apt")?;
        if !output.status.success() {
            return Err(failed(last_error(&String::from_utf8_lossy(&output.stderr))));
        }
        let debs = uris(&String::from_utf8_lossy(&output.stdout));
        let total = debs.iter().map(|deb| deb.size).sum();
        let mut command = self.command("apt-get");
        command.args(["-q", "download", "--"]).args(packages).current_dir(dir);
        watched(command, dir, Some(total), progress).map_err(failed)?;
        match debs.iter().find(|deb| !dir.join(&deb.file).is_file()) {
            Some(deb) => Err(failed(format!("apt left no {}", deb.file))),
            None => Ok(debs),
        }
    }
}

impl Apt {
    /// Downloads a source package's upstream archive to a directory; apt checks its hash. Returns the archive.
    pub(super) fn download_source(&self, package: &str, dir: &Path, progress: &dyn Progress) -> Result<PathBuf, Error> {
        let failed = |problem: String| Error::Download { package: package.to_owned(), problem };
        let mut command = self.command("apt-get");
        command.args(["-q", "source", "--download-only", "--tar-only", "--", package]).current_dir(dir);
        watched(command, dir, None, progress).map_err(failed)?;
        std::fs::read_dir(dir)
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path())
            .find(|path| path.to_string_lossy().contains(".orig.tar.") && !path.to_string_lossy().ends_with(".asc"))
            .ok_or_else(|| failed("apt left no upstream archive".to_owned()))
    }
}

/// Runs apt and reports the number of bytes in `dir` meanwhile. An error has apt's own message.
fn watched(mut command: Command, dir: &Path, total: Option<u64>, progress: &dyn Progress) -> Result<(), String> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|e| format!("apt-get: {e}"))?;
    let stderr = child.stderr.take();
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        if let Some(stderr) = stderr {
            // apt's stderr is short; it is limited anyway.
            use std::io::Read as _;
            stderr.take(1 << 20).read_to_string(&mut text).ok();
        }
        text
    });
    let began = size_of(dir);
    let status = loop {
        match child.try_wait().map_err(|e| e.to_string())? {
            Some(status) => break status,
            None => progress.bytes(size_of(dir).saturating_sub(began), total),
        }
        std::thread::sleep(Duration::from_millis(100));
    };
    let stderr = reader.join().unwrap_or_default();
    if status.success() { Ok(()) } else { Err(last_error(&stderr)) }
}

fn size_of(dir: &Path) -> u64 {
    let files = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let partial = std::fs::read_dir(dir.join("partial")).into_iter().flatten().flatten();
    files.chain(partial).filter_map(|entry| entry.metadata().ok()).filter(|m| m.is_file()).map(|m| m.len()).sum()
}

/// The first error from apt is the cause; later ones only say that something failed.
fn last_error(stderr: &str) -> String {
    let errors: Vec<&str> = stderr.lines().filter_map(|line| line.strip_prefix("E: ")).collect();
    let first = errors.first().copied().or_else(|| stderr.lines().last()).unwrap_or("apt-get failed").trim();
    first.to_owned()
}

/// `Inst NAME (VERSION SUITE [ARCH])` lines of a simulated installation, sorted by name.
fn simulated(text: &str) -> Vec<String> {
    let mut names: Vec<String> = text
        .lines()
        .filter_map(|line| line.strip_prefix("Inst "))
        .filter_map(|rest| rest.split([' ', ':']).next())
        .map(str::to_owned)
        .collect();
    names.sort();
    names.dedup();
    names
}

/// `'URI' FILE SIZE HASH` lines.
fn uris(text: &str) -> Vec<Deb> {
    text.lines()
        .filter_map(|line| {
            let rest = line.strip_prefix('\'')?.split_once("' ")?.1;
            let mut words = rest.split(' ');
            Some(Deb { file: words.next()?.to_owned(), size: words.next()?.parse().ok()? })
        })
        .filter(|deb| !deb.file.contains('/'))
        .collect()
}

/// The `Acquire` options in `apt-config dump`, without those that select indices: these are ours.
fn acquire_options(dump: &str) -> String {
    dump.lines()
        .filter(|line| line.starts_with("Acquire::"))
        .filter(|line| {
            !["Acquire::IndexTargets", "Acquire::Languages", "Acquire::GzipIndexes"].iter().any(|p| line.starts_with(p))
        })
        .fold(String::new(), |mut text, line| {
            text.push_str(line);
            text.push('\n');
            text
        })
}

/// A source of the host that has Debian's own packages.
#[derive(Debug, Default, PartialEq)]
struct Source {
    uri: String,
    suites: Vec<String>,
    components: Vec<String>,
    signed_by: Option<String>,
}

fn host_source() -> Result<Source, Error> {
    if let Ok(uri) = std::env::var("FLASHSCOPE_DEBIAN_MIRROR") {
        return Ok(Source { uri, ..Source::default() });
    }
    let mut files = vec![PathBuf::from("/etc/apt/sources.list")];
    let mut parts: Vec<PathBuf> = std::fs::read_dir("/etc/apt/sources.list.d")
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .collect();
    parts.sort();
    files.extend(parts);
    let mut sources = Vec::new();
    for path in files {
        let Ok(text) = std::fs::read_to_string(&path) else { continue };
        match path.extension().and_then(|e| e.to_str()) {
            Some("list") => sources.extend(one_line_sources(&text)),
            Some("sources") => sources.extend(deb822_sources(&text)),
            _ => {}
        }
    }
    let release = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
    let codename = release.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME=")).unwrap_or("sid");
    choose(sources, codename.trim_matches('"')).ok_or(Error::NoMirror)
}

/// The source for the host's own release, or else one for a release that is certainly Debian's.
fn choose(sources: Vec<Source>, codename: &str) -> Option<Source> {
    const DEBIAN: [&str; 9] =
        ["stable", "oldstable", "testing", "unstable", "sid", "bullseye", "bookworm", "trixie", "forky"];
    let debian = DEBIAN.contains(&codename);
    let offers = |source: &&Source, suite: &dyn Fn(&str) -> bool| {
        source.components.iter().any(|c| c == "main") && source.suites.iter().any(|s| suite(s))
    };
    let own = sources.iter().position(|s| debian && offers(&s, &|suite| suite == codename));
    let any = || sources.iter().position(|s| offers(&s, &|suite| DEBIAN.contains(&suite)));
    let index = own.or_else(any)?;
    sources.into_iter().nth(index)
}

/// `deb [option=value …] URI SUITE COMPONENT…`
fn one_line_sources(text: &str) -> Vec<Source> {
    text.lines()
        .filter_map(|line| {
            let line = line.split('#').next()?.trim();
            let mut rest = line.strip_prefix("deb")?.strip_prefix([' ', '\t'])?.trim_start();
            let mut signed_by = None;
            if let Some(options) = rest.strip_prefix('[') {
                let (options, after) = options.split_once(']')?;
                signed_by = options.split_whitespace().find_map(|o| o.strip_prefix("signed-by=")).map(str::to_owned);
                rest = after;
            }
            let mut words = rest.split_whitespace().map(str::to_owned);
            Some(Source { uri: words.next()?, suites: vec![words.next()?], components: words.collect(), signed_by })
        })
        .collect()
}

/// Paragraphs of `Types:`, `URIs:`, `Suites:`, `Components:`, `Signed-By:`.
fn deb822_sources(text: &str) -> Vec<Source> {
    let mut sources = Vec::new();
    let uncommented: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    for paragraph in uncommented.split(|line| line.trim().is_empty()) {
        let value = |name: &str| {
            paragraph.iter().find_map(|line| {
                let (field, value) = line.split_once(':')?;
                field.eq_ignore_ascii_case(name).then(|| value.trim().to_owned())
            })
        };
        let words = |name: &str| -> Vec<String> {
            value(name).unwrap_or_default().split_whitespace().map(str::to_owned).collect()
        };
        let enabled = value("Enabled").is_none_or(|v| !v.eq_ignore_ascii_case("no"));
        if !enabled || !words("Types").iter().any(|kind| kind == "deb") {
            continue;
        }
        sources.extend(words("URIs").into_iter().next().map(|uri| Source {
            uri,
            suites: words("Suites"),
            components: words("Components"),
            // A key in the file itself (several lines) stays empty here.
            signed_by: value("Signed-By").filter(|path| path.starts_with('/')),
        }));
    }
    sources
}

/// The base suite of a backports suite. Backports are few packages, and their dependencies come from the base suite.
pub(super) fn base_of(suite: &str) -> Option<&str> {
    suite.strip_suffix("-backports")
}

/// The lines for another suite at the same mirror. Debian's own keyring has the keys of all suites.
fn source_lines(source: &Source, kind: &str, suite: &str) -> String {
    let keyring = KEYRINGS.iter().find(|path| Path::new(path).is_file()).map(|path| (*path).to_owned());
    let signed = match keyring.or_else(|| source.signed_by.clone()) {
        Some(path) => format!("[signed-by={path}] "),
        None => String::new(),
    };
    let suites = [Some(suite), base_of(suite)];
    suites.into_iter().flatten().map(|suite| format!("{kind} {signed}{} {suite} main\n", source.uri)).collect()
}

/// Unpacks a package's files without running any of them.
pub(super) fn unpack(deb: &Path, to: &Path) -> Result<(), Error> {
    process::checked(Command::new("dpkg-deb").arg("-x").arg(deb).arg(to), "dpkg").map(drop)
}

/// Moves a finished directory to its place in the cache. If another process was faster, its result stays.
pub(super) fn publish(dir: ScratchDir, to: &Path) -> Result<(), Error> {
    let from = dir.path().to_owned();
    match dir.publish(to) {
        Ok(()) => Ok(()),
        Err(_) if to.is_dir() => {
            remove_tree(&from);
            Ok(())
        }
        Err(error) => Err(Error::io(to, error)),
    }
}

/// Debian's name of this host's architecture.
pub(super) fn host_arch() -> Result<String, Error> {
    let text = process::checked(Command::new("dpkg").arg("--print-architecture"), "dpkg")?;
    Ok(String::from_utf8_lossy(&text).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_of_sources_are_read() {
        let one_line = "# comment\ndeb-src http://mirror.example/debian bookworm main\n\
             deb [arch=amd64 signed-by=/k.gpg] http://mirror.example/debian bookworm main contrib # more\n";
        let expected = Source {
            uri: "http://mirror.example/debian".to_owned(),
            suites: vec!["bookworm".to_owned()],
            components: vec!["main".to_owned(), "contrib".to_owned()],
            signed_by: Some("/k.gpg".to_owned()),
        };
        assert_eq!(one_line_sources(one_line), [expected]);

        let deb822 = "Types: deb deb-src\n# why\nURIs: http://mirror.example/debian\nSuites: trixie trixie-updates\n\
             Components: main\nSigned-By: /k.gpg\n\nEnabled: no\nTypes: deb\nURIs: http://off.example/\nSuites: trixie\n\
             Components: main\n";
        let sources = deb822_sources(deb822);
        assert_eq!(sources.len(), 1, "a source that is switched off does not count");
        assert_eq!(sources[0].suites, ["trixie", "trixie-updates"]);
        assert_eq!(sources[0].signed_by.as_deref(), Some("/k.gpg"));
    }

    #[test]
    fn backports_come_with_their_suite() {
        let source = Source { uri: "http://mirror.example/debian".to_owned(), ..Source::default() };
        let suites = |suite| {
            let lines = source_lines(&source, "deb-src", suite);
            lines.lines().map(|line| line.split_once("debian ").unwrap().1.to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(suites("bookworm-backports"), ["bookworm-backports main", "bookworm main"]);
        assert_eq!(suites("trixie"), ["trixie main"]);
        assert!(source_lines(&source, "deb-src", "sid").starts_with("deb-src "));
    }

    #[test]
    fn the_hosts_own_release_is_preferred_and_foreign_sources_are_not_taken() {
        let source = |uri: &str, suite: &str, component: &str| Source {
            uri: uri.to_owned(),
            suites: vec![suite.to_owned()],
            components: vec![component.to_owned()],
            signed_by: None,
        };
        let sources = || {
            vec![
                source("http://other.example", "nodistro", "main"),
                source("http://sid.example", "sid", "main"),
                source("http://own.example", "bookworm", "main"),
            ]
        };
        assert_eq!(choose(sources(), "bookworm").unwrap().uri, "http://own.example");
        assert_eq!(choose(sources(), "noble").unwrap().uri, "http://sid.example");
        assert_eq!(choose(vec![source("http://u.example", "noble", "main")], "noble"), None);
    }

    #[test]
    fn only_acquire_options_are_taken_over() {
        let dump = "APT::Update::Post-Invoke:: \"rm -f /var/cache/apt/archives/*.deb\";\nAcquire::http::Proxy \"http://p\";\n\
             Acquire::IndexTargets::deb::DEP-11::MetaKey \"x\";\nAcquire::Languages:: \"en\";\n";
        assert_eq!(acquire_options(dump), "Acquire::http::Proxy \"http://p\";\n");
    }

    #[test]
    fn apts_answers_are_read() {
        let text = "'http://h/pool/l/linux-image_6.1_armhf.deb' linux-image_6.1_armhf.deb 1484 SHA256:5b\nnoise\n";
        assert_eq!(uris(text), [Deb { file: "linux-image_6.1_armhf.deb".to_owned(), size: 1484 }]);
        let text =
            "Inst zlib1g (1:1.2.13 Debian:12 [armhf])\nInst libc6 (2.36 Debian:12 [armhf]) []\nConf libc6 (2.36)\n";
        assert_eq!(simulated(text), ["libc6", "zlib1g"]);
        assert_eq!(
            last_error("W: x\nE: The repository has no Release file.\nE: second\n"),
            "The repository has no Release file."
        );
    }
}
