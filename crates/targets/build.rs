//! Builds files into the program: the compressed agents, and the definitions of boards, chips, disks and power profiles.
//!
//! `FLASHSCOPE_EMBED_AGENTS` is a directory with `ARCH/flashscope-agent` and, if it was built, `ARCH/flashscope-sqlite`. Without it the
//! program has no agents. A warning names missing files.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

/// Equal to `CARRIED_BY_DESIGN` in src/agents/carried.rs; a test compares them.
const ARCHITECTURES: [&str; 7] = ["x86_64", "aarch64", "armhf", "armel", "riscv64", "mipsel", "mips64el"];
const PROGRAMS: [&str; 2] = ["flashscope-agent", "flashscope-sqlite"];
/// Folders of TOML files; every file in them is built in.
const FOLDERS: [&str; 4] = ["boards", "chips", "disks", "power"];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=FLASHSCOPE_EMBED_AGENTS");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let mut table = String::from("const CARRIED: &[Carried] = &[\n");
    if let Some(dir) = std::env::var_os("FLASHSCOPE_EMBED_AGENTS").filter(|dir| !dir.is_empty()) {
        let dir = PathBuf::from(dir);
        assert!(dir.is_absolute(), "FLASHSCOPE_EMBED_AGENTS={}: name an absolute path", dir.display());
        // The whole directory, because an agent may be added later.
        println!("cargo::rerun-if-changed={}", dir.display());
        let mut missing = Vec::new();
        for arch in ARCHITECTURES {
            for program in PROGRAMS {
                let path = dir.join(arch).join(program);
                if path.is_file() {
                    let entry = pack(&path, &out, arch, program);
                    table.push_str(&entry);
                } else if program == PROGRAMS[0] {
                    missing.push(arch);
                }
            }
        }
        if !missing.is_empty() {
            println!(
                "cargo::warning=flashscope will carry no agent for {}: {} has none (make agents builds those whose compilers are installed)",
                missing.join(", "),
                dir.display()
            );
        }
    }
    table.push_str("];\n");
    let _ = writeln!(table, "pub(super) const BUILD: Option<&str> = {:?};", build_of_sources());
    std::fs::write(out.join("carried.rs"), table).expect("OUT_DIR can be written");
    let lists: String = FOLDERS.iter().map(|folder| built_in(folder)).collect();
    std::fs::write(out.join("built_in.rs"), lists).expect("OUT_DIR can be written");
}

/// The names and texts of a folder's files, sorted, as a constant.
fn built_in(folder: &str) -> String {
    let top = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("../..");
    let dir = top.canonicalize().expect("the source tree").join(folder);
    // The folder's time changes when a file is added or removed.
    println!("cargo::rerun-if-changed={}", dir.display());
    let listed = std::fs::read_dir(&dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
    let mut files: Vec<PathBuf> = listed.map(|entry| entry.expect("an entry").path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "toml"));
    files.sort_by(|a, b| a.file_stem().cmp(&b.file_stem()));
    let mut list = format!("const BUILT_IN_{}: &[(&str, &str)] = &[\n", folder.to_uppercase());
    for path in files {
        let name = path.file_stem().and_then(|stem| stem.to_str()).expect("a name in UTF-8");
        let _ = writeln!(list, "    ({name:?}, include_str!({:?})),", path.display().to_string());
    }
    list + "];\n"
}

/// The hash of the agent's sources, computed like in agent/Makefile; `None` if the sources are missing.
fn build_of_sources() -> Option<String> {
    let agent = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR")?).join("../../agent");
    let makefile = std::fs::read_to_string(agent.join("Makefile")).ok()?;
    let folders = makefile.lines().find_map(|line| line.strip_prefix("FOLDERS := "))?;
    println!("cargo::rerun-if-changed={}", agent.join("Makefile").display());
    let mut names = Vec::new();
    for folder in std::iter::once("").chain(folders.split_whitespace()) {
        let listed = std::fs::read_dir(agent.join(folder)).ok()?.flatten();
        let sources = listed.filter_map(|entry| entry.file_name().into_string().ok());
        let sources = sources.filter(|name| !name.starts_with('.') && (name.ends_with(".c") || name.ends_with(".h")));
        names.extend(sources.map(|name| if folder.is_empty() { name } else { format!("{folder}/{name}") }));
        if !folder.is_empty() {
            println!("cargo::rerun-if-changed={}", agent.join(folder).display());
        }
    }
    names.sort();
    let mut hash = Sha256::new();
    for name in &names {
        println!("cargo::rerun-if-changed={}", agent.join(name).display());
        hash.update(std::fs::read(agent.join(name)).ok()?);
    }
    Some(hex(&hash.finalize())[..16].to_owned())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a string takes it");
        text
    })
}

/// Compresses one program to OUT_DIR; returns its entry for the table.
fn pack(path: &Path, out: &Path, arch: &str, program: &str) -> String {
    let bytes = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let file = format!("{arch}-{program}.deflate");
    std::fs::write(out.join(&file), miniz_oxide::deflate::compress_to_vec(&bytes, 10)).expect("OUT_DIR can be written");
    let sha256 = hex(&Sha256::digest(&bytes));
    format!(
        "    Carried {{ arch: {arch:?}, name: {program:?}, size: {}, sha256: {sha256:?}, \
         deflated: include_bytes!(concat!(env!(\"OUT_DIR\"), \"/{file}\")) }},\n",
        bytes.len()
    )
}
