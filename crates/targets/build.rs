//! Packs the agents that the program carries.
//!
//! `FLASHSCOPE_EMBED_AGENTS` is a directory with `ARCH/flashscope-agent` and, where it was built, `ARCH/flashscope-sqlite`.
//! Without it the program carries none. What is missing is said in a warning.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

/// As `CARRIED_BY_DESIGN` in src/agents/carried.rs; a test compares what is carried with that.
const ARCHITECTURES: [&str; 7] = ["x86_64", "aarch64", "armhf", "armel", "riscv64", "mipsel", "mips64el"];
const PROGRAMS: [&str; 2] = ["flashscope-agent", "flashscope-sqlite"];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=FLASHSCOPE_EMBED_AGENTS");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let mut table = String::from("const CARRIED: &[Carried] = &[\n");
    if let Some(dir) = std::env::var_os("FLASHSCOPE_EMBED_AGENTS").filter(|dir| !dir.is_empty()) {
        let dir = PathBuf::from(dir);
        assert!(dir.is_absolute(), "FLASHSCOPE_EMBED_AGENTS={}: name an absolute path", dir.display());
        // All of it: an agent may come that is not there yet.
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
    std::fs::write(out.join("carried.rs"), table).expect("OUT_DIR can be written");
}

/// Compresses one program into OUT_DIR; its entry in the table.
fn pack(path: &Path, out: &Path, arch: &str, program: &str) -> String {
    let bytes = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let file = format!("{arch}-{program}.deflate");
    std::fs::write(out.join(&file), miniz_oxide::deflate::compress_to_vec(&bytes, 10)).expect("OUT_DIR can be written");
    let sha256 = Sha256::digest(&bytes).iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a string takes it");
        text
    });
    format!(
        "    Carried {{ arch: {arch:?}, name: {program:?}, size: {}, sha256: {sha256:?}, \
         deflated: include_bytes!(concat!(env!(\"OUT_DIR\"), \"/{file}\")) }},\n",
        bytes.len()
    )
}
