//! Where the agents lie on this host.

use std::path::PathBuf;

use crate::error::Error;

/// File name of an agent in its architecture's directory.
const AGENT: &str = "flashscope-agent";

/// The agent for an architecture: `x86_64`, `aarch64`, `armhf`, `armel`, or the prefix of another cross compiler.
///
/// Looked for in `$FLASHSCOPE_AGENTS`, in `../lib/flashscope/agents` beside the executable, and in `agent/build` of the
/// source tree that the executable or the working directory lies in.
pub fn agent_for(arch: &str) -> Result<PathBuf, Error> {
    let mut tried = Vec::new();
    for dir in places() {
        let path = dir.join(arch).join(AGENT);
        if path.is_file() {
            return Ok(path);
        }
        tried.push(path);
    }
    Err(Error::AgentMissing { arch: arch.to_owned(), tried })
}

/// A program that lies beside the agent of a machine, as `uname -m` names it there (`flashscope-sqlite`).
pub fn companion_for(machine: &str, name: &str) -> Result<PathBuf, Error> {
    let arch = arch_of_machine(machine).unwrap_or(machine);
    let path = agent_for(arch)?.with_file_name(name);
    if path.is_file() { Ok(path) } else { Err(Error::AgentMissing { arch: arch.to_owned(), tried: vec![path] }) }
}

/// The agent that runs on this host.
pub fn host_agent() -> Result<PathBuf, Error> {
    agent_for(arch_of_machine(std::env::consts::ARCH).unwrap_or(std::env::consts::ARCH))
}

fn places() -> Vec<PathBuf> {
    if let Some(dir) = std::env::var_os("FLASHSCOPE_AGENTS") {
        return vec![PathBuf::from(dir)];
    }
    let mut places = Vec::new();
    let exe = std::env::current_exe().ok();
    if let Some(prefix) = exe.as_deref().and_then(|exe| exe.parent()?.parent()) {
        places.push(prefix.join("lib/flashscope/agents"));
    }
    // A source tree is told by its protocol.h, so that no stray `agent/build` of something else is taken.
    let here = std::env::current_dir().ok();
    for start in [exe, here].into_iter().flatten() {
        let tree = start.ancestors().find(|dir| dir.join("agent/protocol.h").is_file());
        if let Some(tree) = tree {
            let build = tree.join("agent/build");
            if !places.contains(&build) {
                places.push(build);
            }
        }
    }
    places
}

/// The agent's architecture for what `uname -m` says. 32-bit ARM below v7 has no hard float in Debian's sense: armel.
pub(crate) fn arch_of_machine(machine: &str) -> Option<&'static str> {
    Some(match machine {
        "x86_64" | "amd64" => "x86_64",
        "aarch64" | "arm64" => "aarch64",
        "armv7l" | "armv7" | "armv8l" | "arm" => "armhf",
        _ if machine.starts_with("armv5") || machine.starts_with("armv6") || machine.starts_with("armv4t") => "armel",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_map_to_the_agents_that_run_there() {
        assert_eq!(arch_of_machine("armv7l"), Some("armhf"));
        assert_eq!(arch_of_machine("armv6l"), Some("armel"));
        assert_eq!(arch_of_machine("armv5tejl"), Some("armel"));
        assert_eq!(arch_of_machine("aarch64"), Some("aarch64"));
        assert_eq!(arch_of_machine("riscv64"), None);
    }
}
