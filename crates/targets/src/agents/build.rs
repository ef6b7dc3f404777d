//! Checks that an agent was built from the same sources as this program: an older agent may lack features.
//!
//! Each agent contains the line that its `--version` prints: version, stream version, and the hash of its sources. `BUILD` has the hash of
//! the sources when flashscope was built. Limit: a program without such a line is an old agent, or not an agent.

use std::path::Path;
use std::sync::Mutex;

use crate::error::Error;

use super::carried::BUILD;

/// Version of the stream that this program reads (`FS_PROTOCOL_VERSION` of agent/protocol.h).
const STREAM: &str = "1";

/// The data in an agent's version line.
#[derive(Debug, PartialEq, Eq)]
struct Said<'a> {
    stream: &'a str,
    build: &'a str,
}

/// Finds the version line in a program's strings.
fn build_of(program: &[u8]) -> Option<Said<'_>> {
    const BEGIN: &[u8] = b"flashscope-agent ";
    const MOST: usize = 200;
    let texts = program.split_inclusive(|&byte| byte == 0).filter(|text| text.len() <= MOST && text.ends_with(&[0]));
    texts
        .filter_map(|text| {
            let at = text.windows(BEGIN.len()).position(|here| here == BEGIN)?;
            let (_, rest) = std::str::from_utf8(&text[at..text.len() - 1]).ok()?.split_once(", stream version ")?;
            let (stream, build) = rest.split_once(", build ")?;
            Some(Said { stream, build })
        })
        .next()
}

/// A line that says why an agent does not fit; an error if its stream cannot be read.
fn judge(path: Option<&Path>, program: &[u8], own: Option<&str>) -> Result<Option<String>, Error> {
    let found = build_of(program);
    if let Some(Said { stream, .. }) = &found
        && *stream != STREAM
    {
        let path = path.unwrap_or(Path::new("the built-in agent")).to_owned();
        return Err(Error::AgentStream { path, stream: (*stream).to_owned(), own: STREAM.to_owned() });
    }
    let (Some(own), build) = (own, found.map_or("unknown", |said| said.build)) else { return Ok(None) };
    let what = format!("of another build ({build}) than this flashscope ({own}): it may lack some of the options; ");
    Ok((build != own).then(|| match path {
        Some(path) => format!(
            "{}: the agent is {what}build both from the same sources, or leave out --agent and FLASHSCOPE_AGENTS",
            path.display()
        ),
        None => format!("the built-in agent is {what}build the agents, then flashscope (make)"),
    }))
}

/// Warns once for each agent that it is from another build. `path` is `None` for a built-in agent.
pub(super) fn check(path: Option<&Path>, program: &[u8]) -> Result<(), Error> {
    static TOLD: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let Some(line) = judge(path, program, BUILD)? else { return Ok(()) };
    let mut told = TOLD.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if !told.contains(&line) {
        flashscope_output::note(&line);
        told.push(line);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(text: &str) -> Vec<u8> {
        [b"\x7fELF flashscope-agent \0flashscope-agent --help\n\0", text.as_bytes(), b"\0more"].concat()
    }

    #[test]
    fn an_agent_says_what_it_is() {
        let found = program("flashscope-agent 0.2.0, stream version 1, build 0123456789abcdef");
        assert_eq!(build_of(&found), Some(Said { stream: "1", build: "0123456789abcdef" }));
        for none in ["flashscope-agent 0.2.0, stream version 1", "flashscope-agent", ""] {
            assert_eq!(build_of(&program(none)), None, "{none}");
        }
        // The text ends with the program.
        assert_eq!(build_of(b"flashscope-agent 0.2.0, stream version 1, build 01"), None);
    }

    #[test]
    fn another_build_is_told_and_another_stream_refused() {
        let of = |text: &str, own| judge(Some(Path::new("agent")), &program(text), own);
        let same = "flashscope-agent 0.2.0, stream version 1, build 01";
        assert_eq!(of(same, Some("01")).unwrap(), None);
        assert_eq!(of(same, None).unwrap(), None, "what this program belongs to is unknown");
        let told = of(same, Some("02")).unwrap().unwrap();
        assert!(told.starts_with("agent: the agent is of another build (01) than this flashscope (02)"), "{told}");
        let told = judge(None, &program(same), Some("02")).unwrap().unwrap();
        assert!(told.starts_with("the built-in agent is of another build") && !told.contains("--agent"), "{told}");
        let before = of("flashscope-agent 0.2.0, stream version 1", Some("02"));
        assert!(before.unwrap().unwrap().contains("another build (unknown)"));
        for own in [Some("01"), Some("02"), None] {
            let error = of("flashscope-agent 9.0, stream version 2, build 01", own).unwrap_err();
            assert!(error.is_usage() && error.to_string().contains("stream version 2"), "{error}");
        }
    }

    #[test]
    fn the_stream_version_is_that_of_the_protocol() {
        let header = include_str!("../../../../agent/protocol.h");
        assert!(header.contains(&format!("#define FS_PROTOCOL_VERSION {STREAM}\n")));
    }
}
