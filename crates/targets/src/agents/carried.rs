//! The agents in this program: compressed, each with the hash of its unpacked bytes. `build.rs` makes the table.

use flashscope_output::hex;
use sha2::{Digest, Sha256};

use crate::error::Error;

/// One program for one architecture.
#[derive(Debug)]
pub(super) struct Carried {
    pub arch: &'static str,
    /// `flashscope-agent`, `flashscope-sqlite`.
    pub name: &'static str,
    /// Unpacked size, bytes.
    pub size: usize,
    /// SHA-256 of the unpacked bytes, in hexadecimal.
    pub sha256: &'static str,
    /// Raw deflate.
    pub deflated: &'static [u8],
}

// `const CARRIED: &[Carried]`, and `pub(super) const BUILD: Option<&str>`: the hash of the agent's sources, if they were available.
include!(concat!(env!("OUT_DIR"), "/carried.rs"));

/// The architectures of the agents in a complete build.
pub const CARRIED_BY_DESIGN: [&str; 7] = ["x86_64", "aarch64", "armhf", "armel", "riscv64", "mipsel", "mips64el"];

/// The architectures of the agents in this program, in the order of [`CARRIED_BY_DESIGN`].
pub fn carried() -> Vec<&'static str> {
    CARRIED_BY_DESIGN.into_iter().filter(|arch| find(arch, super::AGENT).is_some()).collect()
}

pub(super) fn find(arch: &str, name: &str) -> Option<&'static Carried> {
    CARRIED.iter().find(|carried| carried.arch == arch && carried.name == name)
}

impl Carried {
    /// The unpacked program, checked against its hash.
    pub(super) fn bytes(&self) -> Result<Vec<u8>, Error> {
        let bytes = miniz_oxide::inflate::decompress_to_vec_with_limit(self.deflated, self.size).unwrap_or_default();
        if hex(&Sha256::digest(&bytes)) == self.sha256 {
            Ok(bytes)
        } else {
            Err(Error::AgentDamaged { arch: self.arch.to_owned(), name: self.name.to_owned() })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(sha256: &'static str, deflated: Vec<u8>) -> Carried {
        Carried { arch: "armhf", name: "flashscope-agent", size: 5, sha256, deflated: deflated.leak() }
    }

    /// SHA-256 of "agent" (sha256sum).
    const AGENT: &str = "d4f0bc5a29de06b510f9aa428f1eedba926012b591fef7a518e776a7c9bd1824";

    #[test]
    fn what_is_carried_comes_out_as_it_went_in_or_not_at_all() {
        let deflated = miniz_oxide::deflate::compress_to_vec(b"agent", 9);
        assert_eq!(of(AGENT, deflated.clone()).bytes().unwrap(), b"agent");
        let other = miniz_oxide::deflate::compress_to_vec(b"agant", 9);
        let longer = miniz_oxide::deflate::compress_to_vec(b"agent and more", 9);
        for damaged in [other, longer, deflated[..3].to_vec(), Vec::new()] {
            let error = of(AGENT, damaged).bytes().unwrap_err().to_string();
            assert!(error.contains("armhf") && error.contains("damaged"), "{error}");
        }
    }

    #[test]
    fn every_agent_of_this_build_unpacks() {
        for carried in CARRIED {
            assert!(CARRIED_BY_DESIGN.contains(&carried.arch), "{}", carried.arch);
            assert_eq!(carried.bytes().unwrap().len(), carried.size, "{}", carried.arch);
        }
    }
}
