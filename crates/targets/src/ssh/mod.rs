//! A machine over ssh, with the system's client and its configuration. The remote side needs a POSIX shell and `cat`.
//!
//! One connection, the holder, stays open during a job. It finds a directory. When its input ends (the job is done, we were killed, or the
//! line was cut), it removes the job's files. Names contain the holder's pid and start time, so a later holder also removes files of a
//! holder that was killed. The agent's own connection ends the agent when its input ends. So nothing stays on the remote side, however this
//! side ends.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::job::{Job, JobOutcome, Target, placed};
use crate::process::{self, Pumped};
use crate::scratch::ScratchDir;
use crate::{Error, OpenOptions, agents};

/// `record -- CMD` with this terminal as CMD's stdin, stdout and stderr.
mod session;

pub(crate) struct Ssh {
    /// The target as the user gave it.
    name: String,
    host: Host,
    options: OpenOptions,
}

#[derive(Clone, Debug, PartialEq)]
struct Host {
    user: Option<String>,
    host: String,
    port: Option<u16>,
}

/// `ssh://[user@]host[:port]`, with an IPv6 address in brackets.
fn parse(spec: &str) -> Option<Host> {
    let rest = spec.strip_prefix("ssh://")?;
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    let (user, rest) = match rest.rsplit_once('@') {
        Some((user, rest)) => (Some(user.to_owned()), rest),
        None => (None, rest),
    };
    let (host, port) = match rest.strip_prefix('[') {
        Some(bracketed) => {
            let (host, after) = bracketed.split_once(']')?;
            let port = match after {
                "" => None,
                _ => Some(after.strip_prefix(':')?),
            };
            (host, port)
        }
        None => match rest.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (rest, None),
        },
    };
    let port = match port {
        Some(text) => Some(text.parse::<u16>().ok().filter(|port| *port != 0)?),
        None => None,
    };
    // ssh would take a name that begins with a dash for an option.
    let plain = |text: &str| {
        !text.is_empty() && !text.starts_with('-') && text.chars().all(|c| !c.is_control() && !" '\"/\\$;".contains(c))
    };
    (plain(host) && user.as_deref().is_none_or(plain)).then(|| Host { user, host: host.to_owned(), port })
}

/// Quotes a word for a POSIX shell. In single quotes only the quote itself is special.
fn quote(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// The holder's script. It finds a directory in which no other user can change our files, creates our own directory there, and removes
/// those of dead holders. It prints `flashscope ok MACHINE ELF DIR`. At the end of its input it removes the job's files. It has no
/// backslash and no newline, because login shells differ there. `@RANDOM@` is replaced by random hexadecimal digits.
///
/// A directory is called `flashscope_PID_START_NAMESPACE_BOOT_RANDOM`. Its owner is dead if the boot differs, or if this PID namespace has
/// no such process; directories of other namespaces are kept. It contains `flashscope-agent`, `list` (files that were put elsewhere),
/// `stream` (a FIFO), `messages`, `pid` (of the agent).
///
/// With `set -C`, `>` refuses an existing file, links included.
const HOLDER: &str = concat!(
    "trap '' HUP TERM INT PIPE; umask 077; set -C; ",
    "start() { read -r s </proc/$1/stat || return 1; s=${s##*) }; set -- $s; shift 19; echo $1; } 2>/dev/null; ",
    // Only root and we may rename files in it, or in a directory above it.
    "safe() { w=$1; while :; do set -- $(ls -ldn \"$w\"); ",
    "case $1 in d????????[tT]*) ;; d????w*|d???????w*) return 1;; d*) ;; *) return 1;; esac; ",
    "[ \"$3\" = 0 ] || [ -O \"$w\" ] || return 1; ",
    "[ \"$w\" = / ] && return 0; w=${w%/*}; w=${w:-/}; done; }; ",
    "ours() { [ -d \"$1\" ] && [ ! -L \"$1\" ] && [ -O \"$1\" ] || return 1; ",
    "case $(ls -ldn \"$1\") in drwx------*) ;; *) return 1;; esac; }; ",
    // A list of another user could name any file for removal.
    "clear() { if [ -f \"$1/list\" ] && [ ! -L \"$1/list\" ] && [ -O \"$1/list\" ]; then ",
    "set -- \"$1\" $(ls -ldn \"$1/list\"); case $2$3 in -rw-------*1) ",
    "while IFS= read -r g; do rm -f \"$g\"; done <\"$1/list\";; esac; fi; ",
    "for g in flashscope-agent list try stream messages pid; do rm -f \"$1/$g\"; done; rmdir \"$1\"; }; ",
    "n=$(ls -l /proc/$$/ns/pid 2>/dev/null); n=${n##*[}; n=${n%]}; case $n in ''|*[!0-9]*) n=0;; esac; ",
    "b=0; read -r b </proc/sys/kernel/random/boot_id; b=${b%%-*}; ",
    "ok=; for d in \"$TMPDIR\" /tmp /run /dev/shm /var/tmp; do ",
    "[ -n \"$d\" ] && d=$(cd \"$d\" && pwd -P) && [ -w \"$d\" ] && safe \"$d\" || continue; ",
    "p=$d/flashscope_$$_$(start $$)_${n}_${b}_@RANDOM@; ",
    "mkdir -m 700 \"$p\" && ours \"$p\" || continue; ",
    "echo 'exit 0' >\"$p/try\" && chmod 700 \"$p/try\" && \"$p/try\" && : >\"$p/list\" && ok=1; ",
    "rm -f \"$p/try\"; [ -n \"$ok\" ] && break; rm -f \"$p/list\"; rmdir \"$p\"; ",
    "done 2>/dev/null; ",
    "[ -n \"$ok\" ] || { echo flashscope nodir; exit 0; }; ",
    "for f in \"$d\"/flashscope_*_*_*_*_*; do ",
    "IFS=_; set -- ${f##*/}; unset IFS; ",
    "[ $# = 6 ] && ours \"$f\" || continue; case $2$3$4 in *[!0-9]*) continue;; esac; ",
    "if [ \"$5\" = \"$b\" ]; then [ \"$4\" = \"$n\" ] || continue; [ \"$(start $2)\" = \"$3\" ] && continue; fi; ",
    "clear \"$f\"; done; ",
    // Printed as raw bytes: the 5th and 6th byte of an ELF program, its class and its byte order, 1 or 2 each.
    "e=$(dd if=/proc/$$/exe bs=1 skip=4 count=2 2>/dev/null); ",
    "echo flashscope ok \"$(uname -m)\" \"${e:--}\" \"$p\"; ",
    // On request the holder sends the stream on its own connection, so that the command has the other connection for itself.
    "c=; while read -r w; do [ \"$w\" = stream ] || continue; ",
    "if mkfifo \"$p/stream\"; then echo flashscope stream; { cat <\"$p/stream\"; cat <\"$p/messages\" >&2; } & c=$!; ",
    "else echo flashscope nofifo; fi; done; ",
    "alive() { read -r q s <\"$p/pid\" && [ \"$(start $q)\" = \"$s\" ]; } 2>/dev/null; ",
    "i=0; alive && kill -TERM $q; while alive && [ $i -lt 150 ]; do sleep 0.1 2>/dev/null || { sleep 1; i=$((i+9)); }; ",
    "i=$((i+1)); done; alive && kill -KILL $q; ",
    // Opening a FIFO for reading and writing never blocks, and a reader that waits for a writer then continues to its end.
    "if [ -n \"$c\" ]; then : <>\"$p/stream\"; wait $c; fi; ",
    "clear \"$p\"",
);

/// Letters of a remote line in a message.
const MOST_SHOWN: usize = 500;
/// Bytes that are read from a remote shell (such as a banner) before its answer must come.
const BANNER_LIMIT: u64 = 64 * 1024;

/// The connection that owns the remote files. When it ends, they are removed.
struct Holder {
    /// `None`: its stream was read to the end, and it has ended.
    child: Option<Child>,
    stdin: Option<ChildStdin>,
    stdout: Option<BufReader<ChildStdout>>,
    /// Read all the time: a far side that cannot write it would not answer.
    errors: Option<process::Errors>,
    machine: String,
    /// The bytes `EI_CLASS` and `EI_DATA` of its shell; "-" if it cannot tell.
    shell: String,
    /// The job's own directory.
    dir: String,
}

impl Drop for Holder {
    fn drop(&mut self) {
        drop(self.stdin.take());
        let Some(child) = &mut self.child else { return };
        // The remote side removes its files, then the connection ends. ssh's keep-alive ends a dead connection.
        for _ in 0..500 {
            if !matches!(child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        child.kill().ok();
        child.wait().ok();
    }
}

/// Time for an answer. ssh's own limits end a connection that is not accepted (10 s) or that is silent (30 s). A machine whose sshd answers
/// and whose shell does not, or a shared connection that is silent, has no other limit.
const ANSWER_LIMIT: Duration = Duration::from_secs(45);
/// The slowest upload that is waited for, in bytes a second.
const SLOWEST: u64 = 8 * 1024;
/// Interval for checking the stop flag.
const TICK: Duration = Duration::from_millis(50);

/// The holder's next answer. `Err`: none in time, or the user stopped the command; the reader is left to the end of its connection.
fn answer_in_time(
    mut stdout: BufReader<ChildStdout>,
    stop: Option<&AtomicBool>,
) -> Result<(Option<String>, BufReader<ChildStdout>), Duration> {
    let began = Instant::now();
    let (send, receive) = mpsc::channel();
    std::thread::spawn(move || {
        let said = answer(&mut stdout);
        send.send((said, stdout)).ok();
    });
    loop {
        match receive.recv_timeout(TICK) {
            Ok(answered) => return Ok(answered),
            Err(_) if began.elapsed() > ANSWER_LIMIT || stop.is_some_and(|stop| stop.load(Ordering::Relaxed)) => {
                return Err(began.elapsed());
            }
            Err(_) => {}
        }
    }
}

/// The holder's next line; a login script may print other lines first.
fn answer(stdout: &mut BufReader<ChildStdout>) -> Option<String> {
    let mut stdout = stdout.take(BANNER_LIMIT);
    let mut line = String::new();
    while let Ok(1..) = stdout.read_line(&mut line) {
        if let Some(answer) = line.trim_end().strip_prefix("flashscope ") {
            return Some(answer.to_owned());
        }
        line.clear();
    }
    None
}

impl Ssh {
    pub(crate) fn new(spec: &str, options: &OpenOptions) -> Result<Ssh, Error> {
        let host = parse(spec).ok_or_else(|| Error::SshSpec(spec.to_owned()))?;
        Ok(Ssh { name: spec.to_owned(), host, options: options.clone() })
    }

    /// An ssh command that runs a script in the remote POSIX shell, whatever the login shell is.
    fn command(&self, script: &str) -> Command {
        // TERM, not KILL: on TERM ssh closes the connection.
        let mut command = process::dies_with_us("TERM", "ssh".as_ref());
        command.args(["-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10"]);
        command.args(["-o", "ServerAliveInterval=10", "-o", "ServerAliveCountMax=3"]);
        command.args(&self.options.ssh_options);
        if let Some(user) = &self.host.user {
            command.args(["-l", user]);
        }
        if let Some(port) = self.host.port {
            command.args(["-p", &port.to_string()]);
        }
        command.args(["--", &self.host.host]).arg(format!("exec /bin/sh -c {}", quote(script)));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn spawn(&self, script: &str) -> Result<Child, Error> {
        if process::find_program("ssh").is_none() {
            return Err(Error::ProgramMissing { program: "ssh".to_owned(), package: "openssh-client".to_owned() });
        }
        let mut command = self.command(script);
        command.spawn().map_err(|e| process::spawn_error(&command, "util-linux", e))
    }

    fn hold(&self) -> Result<Holder, Error> {
        let random = flashscope_output::random().map_err(|e| Error::io("/dev/urandom".as_ref(), e))?;
        let mut child = self.spawn(&HOLDER.replace("@RANDOM@", &random))?;
        let stdin = child.stdin.take();
        let errors = process::errors_of(&mut child);
        let stdout = BufReader::new(child.stdout.take().expect("stdout is piped"));
        let (answer, stdout) = match answer_in_time(stdout, self.options.stop.as_deref()) {
            Ok(answered) => answered,
            Err(waited) => {
                process::signal(&child, "TERM");
                drop(stdin);
                process::end(child);
                return Err(Error::SshSilent { target: self.name.clone(), seconds: waited.as_secs() });
            }
        };
        let answered = |answer: &str| {
            let mut words = answer.strip_prefix("ok ")?.splitn(3, ' ').map(str::to_owned);
            Some((words.next()?, words.next()?, words.next()?))
        };
        match answer.as_deref().map(|answer| (answer, answered(answer))) {
            Some((_, Some((machine, shell, dir)))) => {
                Ok(Holder { child: Some(child), stdin, stdout: Some(stdout), errors, machine, shell, dir })
            }
            refused => {
                // It has nothing more to say, and may say it without an end.
                drop((stdin, stdout));
                let limit = Some(Duration::from_secs(10));
                let pumped = process::pump_beside(
                    child,
                    errors,
                    process::Source::Pipe,
                    &mut std::io::sink(),
                    limit,
                    None,
                    |child| {
                        child.kill().ok();
                    },
                )?;
                match (self.connection_error(&pumped), refused) {
                    (_, Some(("nodir", _))) => Err(Error::NoRemoteDir { target: self.name.clone() }),
                    (Some(error), _) => Err(error),
                    (None, _) => {
                        let problem = last_line(&pumped.stderr).unwrap_or_else(|| format!("status {}", pumped.status));
                        Err(Error::RemoteShell { target: self.name.clone(), problem })
                    }
                }
            }
        }
    }

    /// The error for a failure of ssh itself, which has exit status 255.
    fn connection_error(&self, pumped: &Pumped) -> Option<Error> {
        if pumped.status != 255 {
            return None;
        }
        Some(classify(&self.name, &pumped.stderr, pumped.bytes))
    }

    /// Runs a script that reads `input`; its stdout is discarded.
    fn feed(&self, script: &str, input: &[u8]) -> Result<Pumped, Error> {
        let mut child = self.spawn(script)?;
        let stdin = child.stdin.take();
        let limit = ANSWER_LIMIT + Duration::from_secs(input.len() as u64 / SLOWEST);
        let pumped = std::thread::scope(|scope| {
            scope.spawn(move || {
                if let Some(mut stdin) = stdin {
                    // If the remote side stops reading, its status has the reason.
                    stdin.write_all(input).ok();
                }
            });
            process::pump(child, &mut std::io::sink(), Some(limit), None, |child| process::signal(child, "TERM"))
        })?;
        if pumped.timed_out {
            return Err(Error::SshSilent { target: self.name.clone(), seconds: limit.as_secs() });
        }
        match self.connection_error(&pumped) {
            Some(error) => Err(error),
            None => Ok(pumped),
        }
    }

    /// Creates a file; an existing file is an error. `list`: note the file for removal.
    fn put(&self, path: &str, mode: u32, bytes: &[u8], list: Option<&Holder>) -> Result<(), Error> {
        let failed = |problem: String| Error::Put { target: self.name.clone(), path: path.to_owned(), problem };
        if path.contains('\n') || (list.is_some() && !path.starts_with('/')) {
            return Err(failed("it is not an absolute path in one line".to_owned()));
        }
        let word = quote(path);
        // Noted for removal only after it was created: an existing file is not ours to remove.
        let note = match list {
            Some(holder) => format!(r"printf '%s\n' {word} >>{} &&", quote(&format!("{}/list", holder.dir))),
            None => String::new(),
        };
        let script = format!(
            "umask 077; set -C; if [ -e {word} ] || [ -L {word} ]; then cat >/dev/null; exit 73; fi; \
             : >{word} && {note} cat >|{word} && chmod {:o} {word}",
            mode & 0o7777
        );
        let pumped = self.feed(&script, bytes)?;
        match pumped.status {
            0 => Ok(()),
            73 => Err(Error::PutExists { target: self.name.clone(), path: path.to_owned() }),
            status => Err(failed(last_line(&pumped.stderr).unwrap_or_else(|| format!("status {status}")))),
        }
    }

    fn get(&self, path: &str, to: &std::path::Path) -> Result<(), Error> {
        let mut file = std::fs::File::create_new(to).map_err(|e| Error::io(to, e))?;
        let child = self.spawn(&format!("exec cat <{}", quote(path)))?;
        let pumped = process::pump(child, &mut file, None, None, |_| {})?;
        match self.connection_error(&pumped) {
            Some(error) => Err(error),
            None if pumped.status == 0 => Ok(()),
            None => Err(Error::Get {
                target: self.name.clone(),
                path: path.to_owned(),
                problem: last_line(&pumped.stderr).unwrap_or_else(|| format!("status {}", pumped.status)),
            }),
        }
    }
}

impl Target for Ssh {
    fn name(&self) -> &str {
        &self.name
    }

    fn run(&self, job: &Job, out: &mut dyn Write) -> Result<JobOutcome, Error> {
        let holder = self.hold()?;
        let known = agents::arch_of_remote(&holder.machine, &holder.shell);
        // Sent each time: an agent that exists there may have another version.
        let bytes = agents::agent_bytes(known.unwrap_or(&holder.machine)).map_err(|error| match (known, error) {
            (None, Error::AgentMissing { .. } | Error::AgentNotCarried { .. }) => {
                Error::UnknownMachine { target: self.name.clone(), machine: holder.machine.clone() }
            }
            (_, error) => error,
        })?;
        let agent = format!("{}/flashscope-agent", holder.dir);
        self.put(&agent, 0o700, &bytes, None)?;
        for file in &job.put {
            self.put(&placed(&file.path, &holder.dir), file.mode, &file.bytes()?, Some(&holder))?;
        }

        if job.pass_stdio {
            return self.run_passing_stdio(holder, &agent, job, out);
        }
        // The agent does not read our input. The connection's input stays open as long as the agent is wanted. When it ends, a watcher asks
        // the agent to end, after checking that the process is still the agent.
        let argv: Vec<String> = job.argv_beside(&holder.dir).iter().map(|word| quote(word)).collect();
        let script = format!(
            "exec 3<&0; {{ cat <&3; read -r c </proc/$$/comm; case $c in flashscope*) kill -TERM $$;; esac; }} \
             >/dev/null 2>&1 & exec {} {} </dev/null 3<&-",
            quote(&agent),
            argv.join(" ")
        );
        let mut child = self.spawn(&script)?;
        let mut stdin = child.stdin.take();
        let timeout = job.timeout.or(self.options.timeout);
        let pumped = process::pump(child, out, timeout, self.options.stop.as_deref(), |_| drop(stdin.take()));
        drop(stdin);
        let mut pumped = pumped?;
        if pumped.asked && pumped.status == 255 && last_line(&pumped.stderr).is_none() {
            // ssh reports this for a command that a signal ended, and the signal was ours.
            pumped.status = 128 + 15;
        }
        if let Some(error) = self.connection_error(&pumped) {
            return Err(error);
        }
        if pumped.timed_out {
            return Err(Error::JobTimeout {
                target: self.name.clone(),
                seconds: timeout.unwrap_or_default().as_secs(),
            });
        }
        let dir = ScratchDir::new("get")?;
        let mut files = Vec::new();
        for (n, path) in job.get.iter().enumerate() {
            let to = dir.path().join(n.to_string());
            self.get(path, &to)?;
            files.push((path.clone(), to));
        }
        let stderr = pumped.stderr;
        Ok(JobOutcome { status: pumped.status, command: None, stderr, files, _files_dir: Some(dir) })
    }
}

/// Of a line that does not end, its begin.
fn last_line(text: &str) -> Option<String> {
    let shown = |line: &str| line.trim().chars().filter(|c| !c.is_control()).take(MOST_SHOWN).collect::<String>();
    text.lines().rev().map(shown).find(|line| !line.is_empty())
}

/// Distinguishes ssh's failures by its messages (OpenSSH ssh.c, sshconnect.c, packet.c, clientloop.c). A failure after some bytes, or of an
/// established connection, is a cut.
fn classify(target: &str, stderr: &str, bytes: u64) -> Error {
    let target = target.to_owned();
    let problem =
        last_line(stderr).unwrap_or_else(|| "ssh ended without a message: it or the agent was killed".to_owned());
    let says = |words: &[&str]| words.iter().any(|word| stderr.contains(word));
    if bytes > 0 || says(&["client_loop:", "Timeout, server", "Broken pipe", "closed by remote host"]) {
        Error::SshCut { target, bytes, problem }
    } else if says(&["Connection refused"]) {
        Error::SshRefused { target, problem }
    } else if says(&["Permission denied", "Too many authentication failures", "No supported authentication"]) {
        Error::SshAuth { target, problem }
    } else if says(&["Host key verification failed", "REMOTE HOST IDENTIFICATION HAS CHANGED", "No matching host key"])
    {
        Error::SshHostKey { target, problem }
    } else if says(&["Connection reset", "Connection closed"]) {
        Error::SshCut { target, bytes, problem }
    } else {
        Error::SshUnreachable { target, problem }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(user: Option<&str>, host: &str, port: Option<u16>) -> Option<Host> {
        Some(Host { user: user.map(str::to_owned), host: host.to_owned(), port })
    }

    #[test]
    fn specs_are_read_and_options_in_disguise_refused() {
        assert_eq!(parse("ssh://root@board"), host(Some("root"), "board", None));
        assert_eq!(parse("ssh://board:2222"), host(None, "board", Some(2222)));
        assert_eq!(parse("ssh://u@[fe80::1%eth0]:22/"), host(Some("u"), "fe80::1%eth0", Some(22)));
        for bad in
            ["ssh://", "ssh://-oProxyCommand=x", "ssh://a:b", "ssh://a:0", "ssh://a:70000", "ssh://-x@h", "ssh://a b"]
        {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_shell_gives_quoted_words_back() {
        for word in ["plain", "with space", "it's", "$HOME `id` \"x\" \\ ; &", "", "-n", "new\nline", "ünï"] {
            let output = Command::new("/bin/sh").arg("-c").arg(format!("printf %s {}", quote(word))).output().unwrap();
            assert_eq!(String::from_utf8(output.stdout).unwrap(), word);
        }
    }

    #[test]
    fn sshs_failures_are_told_apart() {
        let of = |stderr: &str, bytes| classify("ssh://b", stderr, bytes);
        assert!(matches!(of("ssh: connect to host b port 22: Connection refused\r\n", 0), Error::SshRefused { .. }));
        assert!(matches!(of("root@b: Permission denied (publickey).\r\n", 0), Error::SshAuth { .. }));
        assert!(matches!(of("Host key verification failed.\r\n", 0), Error::SshHostKey { .. }));
        assert!(matches!(
            of("ssh: Could not resolve hostname b: Name or service not known\r\n", 0),
            Error::SshUnreachable { .. }
        ));
        assert!(matches!(of("Connection to b closed by remote host.\r\n", 0), Error::SshCut { .. }));
        assert!(matches!(of("anything", 5), Error::SshCut { bytes: 5, .. }));
        let long = format!("{}\n\0\0\0\n", "y".repeat(1 << 16));
        assert!(of(&long, 0).to_string().contains("yyy") && of(&long, 0).to_string().len() < 1000);
        assert_eq!(last_line("\0\0\0\n\u{1b}\n"), None);
        assert_eq!(of("a\nssh: connect to host b port 22: Connection refused\r\n", 0).to_string().lines().count(), 1);
    }
}
