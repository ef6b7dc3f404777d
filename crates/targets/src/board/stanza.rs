//! Stanzas of a Debian package index, and the packages of a kernel.

use std::collections::BTreeMap;

use super::KernelLine;
use crate::error::Error;

/// A package's entry in the index.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Stanza {
    pub package: String,
    pub version: String,
    /// Depends and Pre-Depends.
    pub depends: String,
    pub provides: String,
    pub sha256: String,
    pub size: u64,
}

/// Parses the output of `apt-cache show`. Unknown fields and broken lines are skipped: apt has checked the index.
pub(super) fn parse(text: &str) -> Vec<Stanza> {
    let mut stanzas = Vec::new();
    for paragraph in text.split("\n\n") {
        let mut stanza = Stanza::default();
        let mut field = String::new();
        for line in paragraph.lines() {
            if let Some(more) = line.strip_prefix([' ', '\t']) {
                let target = match field.as_str() {
                    "depends" | "pre-depends" => &mut stanza.depends,
                    "provides" => &mut stanza.provides,
                    _ => continue,
                };
                target.push(' ');
                target.push_str(more.trim());
                continue;
            }
            let Some((name, value)) = line.split_once(':') else { continue };
            field = name.to_ascii_lowercase();
            let value = value.trim().to_owned();
            match field.as_str() {
                "package" => stanza.package = value,
                "version" => stanza.version = value,
                "depends" | "pre-depends" => {
                    if !stanza.depends.is_empty() {
                        stanza.depends.push_str(", ");
                    }
                    stanza.depends.push_str(&value);
                }
                "provides" => stanza.provides = value,
                "sha256" => stanza.sha256 = value,
                "size" => stanza.size = value.parse().unwrap_or(0),
                _ => {}
            }
        }
        if !stanza.package.is_empty() {
            stanzas.push(stanza);
        }
    }
    stanzas
}

/// Names in a Depends field; of alternatives the first.
fn depends(field: &str) -> impl Iterator<Item = &str> {
    field.split(',').filter_map(|dependency| name(dependency.split('|').next()?))
}

/// The name in `name:arch (>= version)`.
fn name(dependency: &str) -> Option<&str> {
    let name = dependency.trim().split([' ', '(', ':']).next()?;
    (!name.is_empty()).then_some(name)
}

/// The packages in a set from apt that are reachable from `wanted` without passing through `left_out` (unless wanted themselves).
/// Alternatives and virtual packages count if the set has them. Sorted by name.
pub(super) fn reached(set: &[Stanza], wanted: &[String], left_out: &[&str]) -> Vec<Stanza> {
    let providers = |dependency: &str| -> Vec<&Stanza> {
        let real: Vec<&Stanza> = set.iter().filter(|stanza| stanza.package == dependency).collect();
        if !real.is_empty() {
            return real;
        }
        set.iter().filter(|stanza| stanza.provides.split(',').filter_map(name).any(|p| p == dependency)).collect()
    };
    let mut found: BTreeMap<String, Stanza> = BTreeMap::new();
    let mut queue: Vec<&Stanza> = wanted.iter().flat_map(|name| providers(name)).collect();
    while let Some(stanza) = queue.pop() {
        let skip = left_out.contains(&stanza.package.as_str()) && !wanted.contains(&stanza.package);
        if skip || found.insert(stanza.package.clone(), stanza.clone()).is_some() {
            continue;
        }
        for dependency in stanza.depends.split(',').flat_map(|alternatives| alternatives.split('|')).filter_map(name) {
            queue.extend(providers(dependency));
        }
    }
    found.into_values().collect()
}

/// Whether a package with this name has a part of a kernel. `linux-base-7.2.13+deb14-armmp` has (modules.builtin); `linux-base`,
/// `linux-base-armmp` and initramfs generators have not.
fn holds_kernel(name: &str) -> bool {
    ["linux-image-", "linux-binary-", "linux-modules-"].iter().any(|prefix| name.starts_with(prefix))
        || name.strip_prefix("linux-base-").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}

/// The current state of a kernel line in the index.
#[derive(Debug)]
pub(super) struct Resolved {
    /// Version of the metapackage.
    pub version: String,
    /// Packages with the kernel's files, in the order in which they were found.
    pub packages: Vec<Stanza>,
}

/// Follows a line's metapackage to the packages with the kernel and its modules.
///
/// Up to 6.12 there is one package, `linux-image-RELEASE`. Since 7.x it depends on `linux-binary-RELEASE`, `linux-modules-RELEASE` and
/// `linux-base-RELEASE`.
pub(super) fn resolve(
    line: &KernelLine,
    suite: &str,
    lookup: &dyn Fn(&str) -> Result<Option<Stanza>, Error>,
) -> Result<Resolved, Error> {
    let missing = |package: &str| Error::NoSuchPackage { package: package.to_owned(), suite: suite.to_owned() };
    let meta = lookup(&line.package)?.ok_or_else(|| missing(&line.package))?;
    if !meta.version.starts_with(&line.version) {
        return Err(Error::WrongVersion {
            package: line.package.clone(),
            suite: suite.to_owned(),
            version: meta.version,
            wanted: line.version.clone(),
        });
    }
    let mut packages: Vec<Stanza> = Vec::new();
    let mut queue = vec![meta.clone()];
    // Each round takes one package from the index, so the loop ends; a kernel has two or three.
    while let Some(stanza) = queue.pop() {
        for name in depends(&stanza.depends) {
            if holds_kernel(name) && !packages.iter().any(|known| known.package == name) {
                let found = lookup(name)?.ok_or_else(|| missing(name))?;
                packages.push(found.clone());
                queue.push(found);
            }
        }
    }
    if packages.is_empty() {
        // Not a metapackage: the line names the kernel package itself.
        packages.push(meta.clone());
    }
    Ok(Resolved { version: meta.version, packages })
}

#[cfg(test)]
mod tests {
    use super::*;

    // Excerpts in the form of Debian's indices, bookworm and sid, with only the fields that matter here; hashes and sizes are made up.
    const BOOKWORM: &str = "\
Package: linux-image-armmp
Version: 6.1.176-1
Depends: linux-image-6.1.0-50-armmp (= 6.1.176-1)
Description: Linux for ARMv7 multiplatform compatible SoCs (meta-package)
 This is a metapackage.
Size: 1484
SHA256: aa

Package: linux-image-6.1.0-50-armmp
Version: 6.1.176-1
Depends: kmod, linux-base (>= 4.3~),
 initramfs-tools (>= 0.120+deb8u2) | linux-initramfs-tool
Size: 30000000
SHA256: bb
";
    const SID: &str = "\
Package: linux-image-armmp
Version: 7.2.13-1
Depends: linux-base-armmp (= 7.2.13-1), linux-image-7.2.13+deb14-armmp (= 7.2.13-1)

Package: linux-image-7.2.13+deb14-armmp
Version: 7.2.13-1
Depends: dracut | initramfs-tools (>= 0.120+deb8u2) | linux-initramfs-tool, linux-base-7.2.13+deb14-armmp (= 7.2.13-1), linux-binary-7.2.13+deb14-armmp (= 7.2.13-1), linux-modules-7.2.13+deb14-armmp (= 7.2.13-1)

Package: linux-binary-7.2.13+deb14-armmp
Version: 7.2.13-1
Depends: linux-base-7.2.13+deb14-armmp (= 7.2.13-1)

Package: linux-modules-7.2.13+deb14-armmp
Version: 7.2.13-1
Depends: linux-base-7.2.13+deb14-armmp (= 7.2.13-1)

Package: linux-base-7.2.13+deb14-armmp
Version: 7.2.13-1
";

    fn line(version: &str) -> KernelLine {
        KernelLine {
            name: "x".to_owned(),
            suites: vec!["suite".to_owned()],
            package: "linux-image-armmp".to_owned(),
            version: version.to_owned(),
            default: false,
        }
    }

    fn resolve_in(index: &str, version: &str) -> Result<Resolved, Error> {
        let stanzas = parse(index);
        resolve(&line(version), "suite", &|name| Ok(stanzas.iter().find(|s| s.package == name).cloned()))
    }

    fn names(resolved: &Resolved) -> Vec<&str> {
        resolved.packages.iter().map(|s| s.package.as_str()).collect()
    }

    #[test]
    fn one_package_holds_a_6_1_kernel() {
        let resolved = resolve_in(BOOKWORM, "6.1.").unwrap();
        assert_eq!(resolved.version, "6.1.176-1");
        assert_eq!(names(&resolved), ["linux-image-6.1.0-50-armmp"]);
        assert_eq!(resolved.packages[0].size, 30_000_000);
        assert!(resolved.packages[0].depends.ends_with("linux-initramfs-tool"), "continuation lines are joined");
    }

    #[test]
    fn a_7_x_kernel_is_split_in_base_binary_and_modules() {
        let resolved = resolve_in(SID, "").unwrap();
        assert_eq!(
            names(&resolved),
            [
                "linux-image-7.2.13+deb14-armmp",
                "linux-base-7.2.13+deb14-armmp",
                "linux-binary-7.2.13+deb14-armmp",
                "linux-modules-7.2.13+deb14-armmp"
            ]
        );
    }

    #[test]
    fn what_only_maintainer_scripts_need_is_not_followed() {
        let set = parse(
            "Package: server\nPre-Depends: init-helpers (>= 1)\nDepends: libc6 (>= 2), libssl3 | libssl4, awk\n\n\
             Package: init-helpers\nDepends: perl:any\n\nPackage: perl\nDepends: libc6\n\nPackage: libc6\n\n\
             Package: libssl4\n\nPackage: mawk\nProvides: awk (= 1)\n",
        );
        let names = |wanted: &str| -> Vec<String> {
            reached(&set, &[wanted.to_owned()], &["init-helpers"]).into_iter().map(|s| s.package).collect()
        };
        assert_eq!(names("server"), ["libc6", "libssl4", "mawk", "server"]);
        assert_eq!(names("init-helpers"), ["init-helpers", "libc6", "perl"]);
    }

    #[test]
    fn a_suite_that_moved_on_is_told() {
        let error = resolve_in(SID, "6.12.").unwrap_err().to_string();
        assert!(error.starts_with("linux-image-armmp of suite is 7.2.13-1, and not 6.12.x"), "{error}");
        let error = resolve_in("", "").unwrap_err().to_string();
        assert_eq!(error, "linux-image-armmp: not in suite; check its name");
    }
}
