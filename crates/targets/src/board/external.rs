//! Builds our kernel modules (`kernel/NAME/`) for a board's kernel, from Debian's headers.
//!
//! Cache: `headers/ARCH/RELEASE_VERSION/root` has a kernel's headers, and its kbuild tools with their libraries, so that modules for a
//! kernel newer than the host can be built. `sources/MODULE/` has the files that a module takes from a Debian source package (`source.rs`).
//! `modules/ARCH/RELEASE/NAME-HASH/NAME.ko` has the built module, by a hash of all inputs, with its own SHA-256 in a file beside it: if the
//! SHA-256 differs, the module is built again.

use std::path::{Path, PathBuf};
use std::process::Command;

use flashscope_output::hex;
use serde::Deserialize;
use sha2::{Digest, Sha256};

use super::files;
use super::source::Source;
use super::{Kernel, apt};
use crate::error::Error;
use crate::process;
use crate::progress::Progress;
use crate::scratch::{ScratchDir, cache_dir};

/// `kernel/NAME/module.toml`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Manifest {
    name: String,
    /// Kernel modules to load first.
    needs: Vec<String>,
    source: Option<Source>,
}

/// A built module.
#[derive(Clone, Debug)]
pub struct ExternalModule {
    pub name: String,
    pub path: PathBuf,
    /// Kernel modules to load first.
    pub needs: Vec<String>,
}

/// Whether we have a module of this name.
pub(super) fn is_ours(name: &str) -> bool {
    files::own_modules().contains(&name)
}

/// Names of an architecture in Debian and in kbuild, and of its cross compiler.
struct Toolchain {
    kbuild: &'static str,
    prefix: &'static str,
    package: &'static str,
}

fn toolchain(arch: &str) -> Option<Toolchain> {
    let (kbuild, prefix, package) = match arch {
        "armhf" => ("arm", "arm-linux-gnueabihf-", "gcc-arm-linux-gnueabihf"),
        "arm64" => ("arm64", "aarch64-linux-gnu-", "gcc-aarch64-linux-gnu"),
        "amd64" => ("x86_64", "x86_64-linux-gnu-", "gcc-x86-64-linux-gnu"),
        _ => return None,
    };
    Some(Toolchain { kbuild, prefix, package })
}

/// Builds one of our modules for a kernel, or takes it from the cache.
pub(super) fn build(
    board: &str,
    arch: &str,
    kernel: &Kernel,
    name: &str,
    progress: &dyn Progress,
) -> Result<ExternalModule, Error> {
    let failed =
        |problem: String| Error::ModuleBuild { module: name.to_owned(), kernel: kernel.release.clone(), problem };
    let own = files::own_module(name)?;
    let manifest: Manifest = files::parse(&own.manifest_path, &own.manifest)?;
    let (Some(suite), Some(tools)) = (&kernel.suite, toolchain(arch)) else {
        return Err(failed("only Debian's kernels for armhf, arm64 and amd64 have headers to build for".to_owned()));
    };
    let compiler = compiler(&tools)?;

    let mut sources = own.files;
    if let Some(source) = &manifest.source {
        sources.extend(source.fetch(&manifest.name, progress)?);
    }
    sources.sort();
    let mut hash = Sha256::new();
    let flags = format!("{} {}", compile_flags(Path::new("")), BUILD_FLAGS.join(" "));
    for text in [arch, &kernel.release, &kernel.version, &compiler, &flags] {
        hash.update(text);
        hash.update([0]);
    }
    for (path, bytes) in &sources {
        hash.update(path);
        hash.update([0]);
        hash.update(Sha256::digest(bytes));
    }
    let key = &hex(&hash.finalize())[..24];
    let dir = cache_dir()?.join("modules").join(arch).join(&kernel.release).join(format!("{name}-{key}"));
    let module = ExternalModule { name: name.to_owned(), path: dir.join(format!("{name}.ko")), needs: manifest.needs };
    if is_as_built(&module.path) {
        return Ok(module);
    }
    // The module was changed since, or an older flashscope stored no hash.
    if dir.is_dir() {
        std::fs::remove_dir_all(&dir).map_err(|e| Error::io(&dir, e))?;
    }

    let headers = fetch_headers(board, arch, kernel, suite, progress)?;
    progress.step(&format!("building {name} for kernel {} ({arch})", kernel.release));
    let scratch = ScratchDir::new("module")?;
    let tree = scratch.path().join("tree");
    for (path, bytes) in &sources {
        let path = tree.join(path);
        let parent = path.parent().expect("a file lies in a directory");
        std::fs::create_dir_all(parent).map_err(|e| Error::io(parent, e))?;
        std::fs::write(&path, bytes).map_err(|e| Error::io(&path, e))?;
    }
    let built = make(&headers, &tree, &tools, name).map_err(failed)?;
    let out = ScratchDir::new("built")?;
    let stripped = out.path().join(format!("{name}.ko"));
    let strip = format!("{}strip", tools.prefix);
    let mut command = Command::new(strip);
    command.arg("--strip-debug").arg("-o").arg(&stripped).arg(built);
    process::checked(&mut command, tools.package)?;
    let bytes = std::fs::read(&stripped).map_err(|e| Error::io(&stripped, e))?;
    let beside = hash_path(&stripped);
    std::fs::write(&beside, hex(&Sha256::digest(&bytes))).map_err(|e| Error::io(&beside, e))?;
    apt::publish(out, &dir)?;
    Ok(module)
}

/// Path of a built module's SHA-256.
fn hash_path(module: &Path) -> PathBuf {
    module.with_extension("ko.sha256")
}

/// Whether a module exists and is unchanged since it was built.
fn is_as_built(module: &Path) -> bool {
    let (Ok(bytes), Ok(hash)) = (std::fs::read(module), std::fs::read_to_string(hash_path(module))) else {
        return false;
    };
    hex(&Sha256::digest(&bytes)) == hash.trim()
}

/// No debug information, and no type information, which needs pahole and the kernel image.
const BUILD_FLAGS: [&str; 2] = ["CONFIG_DEBUG_INFO=", "CONFIG_DEBUG_INFO_BTF_MODULES="];

/// Flags that keep the tree's path out of the module. Headers of 7.x use an attribute that GCC before 15 lacks.
fn compile_flags(tree: &Path) -> String {
    format!("KCFLAGS=-ffile-prefix-map={}/= -Wno-attributes", tree.display())
}

/// The compiler's version text, which is part of the hash of the inputs.
fn compiler(tools: &Toolchain) -> Result<String, Error> {
    let text = process::checked(Command::new(format!("{}gcc", tools.prefix)).arg("--version"), tools.package)?;
    Ok(String::from_utf8_lossy(&text).lines().next().unwrap_or_default().to_owned())
}

/// Runs kbuild; an error has its last lines.
fn make(headers: &Headers, tree: &Path, tools: &Toolchain, name: &str) -> Result<PathBuf, String> {
    let gcc = format!("{}gcc", tools.prefix);
    let mut command = Command::new("make");
    let jobs = std::thread::available_parallelism().map_or(1, usize::from);
    command.env_remove("MAKEFLAGS").env("LC_ALL", "C.UTF-8").arg(format!("-j{jobs}")).arg("-C").arg(&headers.dir);
    command.arg(format!("M={}", tree.display()));
    command.arg(format!("ARCH={}", tools.kbuild)).arg(format!("CROSS_COMPILE={}", tools.prefix));
    // The headers name the compiler of the kernel's build; the host has another version.
    command.arg(format!("CC={gcc}"));
    command.arg(compile_flags(tree)).args(BUILD_FLAGS);
    // The kernel's configuration assumes an option of GCC 14; without it kbuild uses -falign-functions.
    let known = Command::new(&gcc).args(["-fmin-function-alignment=16", "-E", "-x", "c", "/dev/null"]).output();
    if !known.is_ok_and(|output| output.status.success()) {
        command.arg("CONFIG_CC_HAS_MIN_FUNCTION_ALIGNMENT=");
    }
    command.arg("modules");
    let output = process::output(&mut command, "make").map_err(|e| e.to_string())?;
    let module = tree.join(format!("{name}.ko"));
    if output.status.success() && module.is_file() {
        return Ok(module);
    }
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    let told = text.lines().find(|line| line.contains("error:") || line.contains("not found")).or(text.lines().last());
    Err(told.unwrap_or("make failed").trim().replace(&format!("{}/", tree.display()), ""))
}

/// A kernel's headers, ready for a build.
struct Headers {
    /// The directory for `make -C`.
    dir: PathBuf,
}

fn fetch_headers(
    board: &str,
    arch: &str,
    kernel: &Kernel,
    suite: &str,
    progress: &dyn Progress,
) -> Result<Headers, Error> {
    let package = format!("linux-headers-{}", kernel.release);
    let cached = cache_dir()?.join("headers").join(arch).join(format!("{}_{}", kernel.release, kernel.version));
    let dir = cached.join("root/usr/src").join(&package);
    if dir.is_dir() {
        return Ok(Headers { dir });
    }
    progress.step(&format!("fetching the headers of kernel {} for {board}", kernel.release));
    let scratch = ScratchDir::new("headers")?;
    let root = scratch.path().join("root");
    let target = apt::Apt::open(suite, arch, false, progress)?;
    let target = match target.show(&package)? {
        Some(stanza) if stanza.version == kernel.version => target,
        // The cached index may be older than the kernel.
        _ => apt::Apt::open(suite, arch, true, progress)?,
    };
    let stanza = target.show(&package)?.filter(|stanza| stanza.version == kernel.version).ok_or_else(|| {
        Error::NoHeaders { package: package.clone(), version: kernel.version.clone(), suite: suite.to_owned() }
    })?;
    let depends = |prefix: &str| -> Option<String> {
        stanza.depends.split([',', '|']).find_map(|dependency| {
            let name = dependency.trim().split([' ', '(', ':']).next()?;
            name.starts_with(prefix).then(|| name.to_owned())
        })
    };
    let missing = |what: &str| Error::Download { package: package.clone(), problem: format!("it names no {what}") };
    let common = depends("linux-headers-").ok_or_else(|| missing("common headers"))?;
    let kbuild = depends("linux-kbuild-").ok_or_else(|| missing("kbuild tools"))?;
    unpack(&target, &[format!("{package}={}", kernel.version), common], &root, progress)?;

    // The tools run on this host with the libraries they were linked with, from the kernel's suite.
    let host_arch = apt::host_arch()?;
    let host = apt::Apt::open(suite, &host_arch, false, progress)?;
    let names = match host.closure(std::slice::from_ref(&kbuild)) {
        Ok(names) => names,
        Err(_) => apt::Apt::open(suite, &host_arch, true, progress)?.closure(std::slice::from_ref(&kbuild))?,
    };
    unpack(&host, &names, &root, progress)?;
    wrap_tools(&root).map_err(|problem| Error::Download { package: kbuild, problem })?;
    relocate(&root.join("usr/src").join(&package).join("Makefile"))?;
    apt::publish(scratch, &cached)?;
    Ok(Headers { dir })
}

fn unpack(apt: &apt::Apt, packages: &[String], root: &Path, progress: &dyn Progress) -> Result<(), Error> {
    let dir = ScratchDir::new("debs")?;
    for deb in apt.download(packages, dir.path(), progress)? {
        apt::unpack(&dir.path().join(&deb.file), root)?;
    }
    Ok(())
}

/// The headers expect to be in /usr/src; here they are in adjacent directories.
fn relocate(makefile: &Path) -> Result<(), Error> {
    let text = std::fs::read_to_string(makefile).map_err(|e| Error::io(makefile, e))?;
    let text =
        format!("HERE := $(abspath $(dir $(lastword $(MAKEFILE_LIST)))..)\n{}", text.replace("/usr/src/", "$(HERE)/"));
    std::fs::write(makefile, text).map_err(|e| Error::io(makefile, e))
}

/// Replaces each tool by a script that runs it with the loader and the libraries below `root`.
fn wrap_tools(root: &Path) -> Result<(), String> {
    let mut loaders = Vec::new();
    let mut libraries = Vec::new();
    for base in ["lib", "usr/lib"] {
        for entry in std::fs::read_dir(root.join(base)).into_iter().flatten().flatten() {
            let name = entry.file_name();
            if entry.path().is_dir()
                && name.to_string_lossy().contains("-linux-")
                && entry.path().join("libc.so.6").exists()
            {
                libraries.push(format!("{base}/{}", name.to_string_lossy()));
            }
        }
    }
    // A library's package may use either directory, from before Debian merged them.
    libraries.extend(libraries.clone().iter().map(|path| match path.strip_prefix("usr/") {
        Some(rest) => rest.to_owned(),
        None => format!("usr/{path}"),
    }));
    for base in libraries.iter().map(String::as_str).chain(["lib64", "usr/lib64", "lib", "usr/lib"]) {
        for entry in std::fs::read_dir(root.join(base)).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            // Links in packages are absolute, so only the file itself is usable.
            if name.starts_with("ld")
                && name.contains(".so")
                && !name.contains(".conf")
                && entry.file_type().is_ok_and(|kind| kind.is_file())
            {
                loaders.push(format!("{base}/{name}"));
            }
        }
    }
    loaders.sort();
    let Some(loader) = loaders.first() else { return Err("its C library has no program loader".to_owned()) };
    // Before glibc 2.33 the loader cannot set the program's name. Such tools are old enough to run on any host directly.
    let help = Command::new(root.join(loader)).arg("--help").output().map_err(|e| e.to_string())?;
    if !String::from_utf8_lossy(&help.stdout).contains("--argv0") {
        return Ok(());
    }
    let kbuild = std::fs::read_dir(root.join("usr/lib"))
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .find(|path| {
            path.is_dir() && path.file_name().is_some_and(|n| n.to_string_lossy().starts_with("linux-kbuild-"))
        })
        .ok_or("it brought no tools")?;
    wrap_folder(&kbuild, 3, loader, &libraries).map_err(|e| e.to_string())
}

/// `depth`: number of directories from the headers' root to `dir`.
fn wrap_folder(dir: &Path, depth: usize, loader: &str, libraries: &[String]) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    for entry in std::fs::read_dir(dir)?.flatten() {
        let (path, kind) = (entry.path(), entry.file_type()?);
        if kind.is_dir() {
            wrap_folder(&path, depth + 1, loader, libraries)?;
            continue;
        }
        let name = entry.file_name().to_string_lossy().into_owned();
        if !kind.is_file() || entry.metadata()?.permissions().mode() & 0o111 == 0 || !is_program(&path)? {
            continue;
        }
        let real = format!("{name}.real-program");
        std::fs::rename(&path, dir.join(&real))?;
        // From the script's real directory (links followed) up to the root.
        let up = "/..".repeat(depth);
        let places: Vec<String> = libraries.iter().map(|place| format!("$root/{place}")).collect();
        let script = format!(
            "#!/bin/sh\nhere=${{0%/*}}\nroot=$here{up}\nexec \"$root/{loader}\" --argv0 \"$0\" --library-path \"{}\" \"$here/{real}\" \"$@\"\n",
            places.join(":")
        );
        std::fs::write(&path, script)?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755))?;
    }
    Ok(())
}

/// An ELF file.
fn is_program(path: &Path) -> std::io::Result<bool> {
    use std::io::Read as _;
    let mut magic = [0; 4];
    let n = std::fs::File::open(path)?.read(&mut magic)?;
    Ok(n == 4 && magic == *b"\x7fELF")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_module_of_ours_has_a_manifest_and_all_its_files() {
        for name in files::own_modules() {
            let own = files::own_module(name).unwrap();
            let manifest: Manifest = files::parse(&own.manifest_path, &own.manifest).unwrap();
            assert_eq!(manifest.name, *name);
            let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernel").join(name);
            let mut there = Vec::new();
            list(&dir, &dir, &mut there);
            let mut built_in: Vec<String> = own.files.into_iter().map(|(path, _)| path).collect();
            there.sort();
            built_in.sort();
            assert_eq!(built_in, there, "what is built in is what lies in kernel/{name}");
        }
    }

    fn list(top: &Path, dir: &Path, found: &mut Vec<String>) {
        for entry in std::fs::read_dir(dir).unwrap().flatten() {
            let path = entry.path();
            let name = path.strip_prefix(top).unwrap().display().to_string();
            if path.is_dir() {
                list(top, &path, found);
            } else if name != "module.toml" && !name.ends_with(".md") {
                found.push(name);
            }
        }
    }

    #[test]
    fn a_module_that_was_changed_is_built_again() {
        let dir = ScratchDir::new("as-built").unwrap();
        let path = dir.path().join("m.ko");
        assert!(!is_as_built(&path));
        std::fs::write(&path, "module").unwrap();
        assert!(!is_as_built(&path), "without a hash");
        std::fs::write(hash_path(&path), hex(&Sha256::digest("module"))).unwrap();
        assert!(is_as_built(&path));
        std::fs::write(&path, "modulo").unwrap();
        assert!(!is_as_built(&path), "changed");
    }

    #[test]
    fn headers_are_moved_with_their_makefile() {
        let dir = ScratchDir::new("makefile").unwrap();
        let path = dir.path().join("Makefile");
        std::fs::write(
            &path,
            "KBUILD_OUTPUT=/usr/src/linux-headers-7\ninclude /usr/src/linux-headers-7-common/Makefile\n",
        )
        .unwrap();
        relocate(&path).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(
            text.ends_with("KBUILD_OUTPUT=$(HERE)/linux-headers-7\ninclude $(HERE)/linux-headers-7-common/Makefile\n"),
            "{text}"
        );
    }
}
