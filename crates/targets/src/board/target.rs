//! Runs one agent command on a virtual board: a new boot for each command, with its output from the port's frames.

use std::io::{BufReader, Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::time::Duration;

use super::{Board, BootOutcome, ImageBuilder, Run};
use crate::frames::{self, FS_EXIT, FS_FILE, FS_LOG, FS_OUTPUT, u32_at, u64_at};
use crate::job::{Job, JobOutcome, Target, placed};
use crate::scratch::ScratchDir;
use crate::{Error, OpenOptions};

/// The agent's path in a boot image.
const AGENT: &str = "/flashscope/agent";
const BESIDE: &str = "/flashscope";
/// The file of a boot image that is the command's stdin.
const STDIN: &str = "/flashscope/stdin";

pub(crate) struct BoardTarget {
    name: String,
    board: Board,
    options: OpenOptions,
}

impl BoardTarget {
    pub(crate) fn new(board: &str, options: &OpenOptions) -> Result<BoardTarget, Error> {
        let board = super::load(board)?;
        Ok(BoardTarget { name: format!("board:{}", board.name), board, options: options.clone() })
    }

    fn plan_error(&self, problem: &str) -> Error {
        Error::Plan { board: self.board.name.clone(), problem: problem.to_owned() }
    }

    /// The lines of the plan for a command, and the index of the line whose step is the command.
    fn command_lines(&self, argv: &[String]) -> Result<(Vec<String>, usize), Error> {
        let words = |argv: &[String]| -> Result<String, Error> {
            let escaped: Option<Vec<String>> = argv.iter().map(|word| plan_word(word)).collect();
            let mut escaped = escaped.ok_or_else(|| self.plan_error("an argument is empty; leave it out"))?;
            // As under a recorder on a real board, this name means the agent, whatever its file is called.
            if let Some(first) = escaped.first_mut().filter(|first| *first == "flashscope-agent") {
                AGENT.clone_into(first);
            }
            Ok(escaped.join(" "))
        };
        if argv.first().map(String::as_str) != Some("record") {
            return Ok((vec![format!("-run agent {AGENT} {}", words(argv)?)], 0));
        }
        let split = argv.iter().position(|word| word == "--");
        let Some((options, command)) = split.map(|at| (&argv[1..at], &argv[at + 1..])).filter(|(_, c)| !c.is_empty())
        else {
            return Err(self.plan_error("a recording on a board needs an end: give a command after --"));
        };
        if options.iter().any(|option| option == "-o") {
            return Err(self.plan_error("the stream leaves by the port: leave out -o"));
        }
        let (user, options) = without_user(options);
        let start =
            if options.is_empty() { "record-start".to_owned() } else { format!("record-start {}", words(&options)?) };
        let command = match user {
            Some(user) => [&["flashscope-agent", "exec", "--user", user, "--"].map(str::to_owned), command].concat(),
            None => command.to_vec(),
        };
        // The dash: a failing command is a valid outcome, and its recording is completed.
        Ok((vec![start, format!("-run command {}", words(&command)?), "record-stop".to_owned()], 1))
    }
}

impl Target for BoardTarget {
    fn name(&self) -> &str {
        &self.name
    }

    fn run(&self, job: &Job, out: &mut dyn Write) -> Result<JobOutcome, Error> {
        let (command, command_line) = self.command_lines(&job.argv_beside(BESIDE))?;
        let progress = self.options.progress();
        let board = &self.board;
        let kernel = board.fetch(self.options.kernel.as_deref().unwrap_or_default(), progress)?;
        let packages = board.fetch_packages(&kernel, &self.options.packages, progress)?;

        let mut image = ImageBuilder::new(board)?;
        let mut lines = image.add_port_modules(&kernel)?;
        let settings = board.disk_settings(&self.options.disk)?;
        lines.extend(image.add_storage(&kernel, &self.options.parts, settings.as_ref())?);
        let more: Vec<&str> = self.options.modules.iter().map(String::as_str).collect();
        board.prepare_modules(&kernel, &more, progress)?;
        for path in image.add_module_closure(&kernel, &more)? {
            lines.push(format!("module {path}"));
        }
        image.add_packages(&packages)?;
        for file in &job.put {
            image.add_file(&placed(&file.path, BESIDE), file.mode, file.bytes()?);
        }
        lines.extend(self.options.before.iter().cloned());
        if !job.stdin.is_empty() {
            image.add_private_file(STDIN, 0o644, job.stdin.clone());
            lines.push(format!("stdin {STDIN}"));
        }
        let step = lines.len() + command_line + 1;
        lines.extend(command);
        for path in &job.get {
            let path = plan_word(path).ok_or_else(|| self.plan_error("the name of a file to get is empty"))?;
            lines.push(format!("get {path}"));
        }
        image.set_plan(&lines);
        let image = image.build()?;

        let mut run = Run::new(board, &kernel, &image);
        run.timeout = job.timeout.or(self.options.timeout).unwrap_or(Duration::from_secs(600));
        run.stop = self.options.stop.as_deref();
        let recording = job.argv.first().is_some_and(|word| word == "record");
        match super::boot(&run, progress) {
            Ok(outcome) => self.deliver(&outcome, job, step, recording, out),
            Err(Error::Boot(failure)) => {
                // The data recorded before the failure is kept.
                if recording && let Ok(mut port) = std::fs::File::open(failure.port_file()) {
                    std::io::copy(&mut port, out).map_err(Error::Output)?;
                }
                Err(Error::Boot(failure))
            }
            Err(error) => Err(error),
        }
    }
}

impl BoardTarget {
    fn deliver(
        &self,
        outcome: &BootOutcome,
        job: &Job,
        step: usize,
        recording: bool,
        out: &mut dyn Write,
    ) -> Result<JobOutcome, Error> {
        let path = outcome.port_file();
        let failed = |e| Error::io(&path, e);
        let mut port = BufReader::new(std::fs::File::open(&path).map_err(failed)?);
        if recording {
            std::io::copy(&mut port, out).and_then(|_| out.flush()).map_err(Error::Output)?;
            port.seek(SeekFrom::Start(0)).map_err(failed)?;
        }
        let dir = ScratchDir::new("get")?;
        let files: Vec<(String, PathBuf)> =
            job.get.iter().enumerate().map(|(n, path)| (path.clone(), dir.path().join(n.to_string()))).collect();
        let mut status = None;
        let mut stderr = Vec::new();
        while let Some(frame) = frames::next(&mut port).map_err(failed)? {
            let ours = usize::from(frame.source) == step;
            let payload = &frame.payload;
            match frame.kind {
                FS_OUTPUT if ours => match (u32_at(payload, 0), payload.get(4..)) {
                    // If nobody reads the output, the recording is complete all the same.
                    (Some(1), Some(text)) if job.pass_stdio => _ = std::io::stdout().write_all(text),
                    (Some(2), Some(text)) if job.pass_stdio => _ = std::io::stderr().write_all(text),
                    (Some(1), Some(text)) if !recording => out.write_all(text).map_err(Error::Output)?,
                    (Some(2), Some(text)) => stderr.extend_from_slice(text),
                    _ => {}
                },
                FS_EXIT if ours => status = u32_at(payload, 16).map(|bits| bits as i32),
                // Errors of any source are useful beside the command's own.
                FS_LOG if !job.pass_stdio && u32_at(payload, 0) == Some(0) => {
                    stderr.extend_from_slice(payload.get(4..).unwrap_or_default());
                    stderr.push(b'\n');
                }
                FS_FILE if usize::from(frame.source) > step => {
                    self.keep_file(payload, &files)?;
                }
                _ => {}
            }
        }
        out.flush().map_err(Error::Output)?;
        if let Some((wanted, _)) = files.iter().find(|(_, to)| !to.exists()) {
            return Err(Error::Get {
                target: self.name.clone(),
                path: wanted.clone(),
                problem: "the board sent no such file".to_owned(),
            });
        }
        let Some(status) = status else {
            return Err(self.plan_error("the stream ends before the command's exit status; run it again"));
        };
        let stderr = String::from_utf8_lossy(&stderr).into_owned();
        let (status, command) = if job.pass_stdio { (0, Some(status)) } else { (status, None) };
        if job.pass_stdio {
            std::io::stdout().flush().ok();
        }
        Ok(JobOutcome { status, command, stderr, files, _files_dir: Some(dir) })
    }

    /// Writes a part of a file at its offset. FS_FILE: offset, mode, length of the path, path NUL, bytes.
    fn keep_file(&self, payload: &[u8], files: &[(String, PathBuf)]) -> Result<(), Error> {
        let piece = || {
            let offset = u64_at(payload, 0)?;
            let length = u32_at(payload, 12)? as usize;
            let path = std::str::from_utf8(payload.get(16..16usize.checked_add(length)?)?).ok()?;
            let bytes = payload.get(16 + length + 1..)?;
            let to = &files.iter().find(|(wanted, _)| wanted == path)?.1;
            Some((to, offset, bytes))
        };
        let Some((to, offset, bytes)) = piece() else { return Ok(()) };
        let failed = |e| Error::io(to, e);
        // A file in this process's directory, with a name that we chose. The first part creates it, later parts open it.
        let mut file = match std::fs::File::create_new(to) {
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {
                std::fs::OpenOptions::new().write(true).open(to).map_err(failed)?
            }
            made => made.map_err(failed)?,
        };
        file.seek(SeekFrom::Start(offset)).and_then(|_| file.write_all(bytes)).map_err(failed)
    }
}

/// The recorder's options without `--user NAME`, and that name: on a board the command is a step of its own.
fn without_user(options: &[String]) -> (Option<&str>, Vec<String>) {
    let Some(at) = options.iter().position(|option| option == "--user") else { return (None, options.to_vec()) };
    let rest = options.iter().enumerate().filter(|(n, _)| *n != at && *n != at + 1).map(|(_, word)| word.clone());
    (options.get(at + 1).map(String::as_str), rest.collect())
}

/// A word for a plan; `None` for an empty word, which a plan cannot express.
pub fn plan_word(word: &str) -> Option<String> {
    let mut escaped = String::new();
    for byte in word.bytes() {
        match byte {
            b'!'..=b'~' if byte != b'%' => escaped.push(char::from(byte)),
            _ => escaped.push_str(&format!("%{byte:02X}")),
        }
    }
    (!escaped.is_empty()).then_some(escaped)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(argv: &[&str]) -> Result<(Vec<String>, usize), Error> {
        let target = BoardTarget::new("armv7", &OpenOptions::default()).unwrap();
        target.command_lines(&argv.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn commands_become_lines_of_a_plan() {
        assert_eq!(lines(&["probe"]).unwrap(), (vec!["-run agent /flashscope/agent probe".to_owned()], 0));
        let (record, step) = lines(&["record", "--events", "flash", "--", "dd", "if=/a b%"]).unwrap();
        assert_eq!(record, ["record-start --events flash", "-run command dd if=/a%20b%25", "record-stop"]);
        assert_eq!(step, 1);
        let (record, _) = lines(&["record", "--user", "media", "--ring", "8", "--", "id"]).unwrap();
        let run = "-run command /flashscope/agent exec --user media -- id";
        assert_eq!(record, ["record-start --ring 8", run, "record-stop"]);
    }

    #[test]
    fn what_a_plan_cannot_say_is_refused() {
        assert!(lines(&["record", "--events", "flash"]).unwrap_err().to_string().contains("needs an end"));
        assert!(lines(&["record", "-o", "x", "--", "true"]).unwrap_err().to_string().contains("leave out -o"));
        assert!(lines(&["bench", ""]).unwrap_err().to_string().contains("empty"));
    }
}
