//! Findings as text, with the same words on the terminal and on the HTML page.

use crate::text::{digits, duration, escape, grouped, percent, size};
use flashscope_analysis::Evidence;
use flashscope_analysis::findings::{Finding, Measure, MeasureUnit, Remedy, Step};
use flashscope_output::quote;

/// Largest number of findings in a report; `advise` shows all.
pub const IN_REPORT: usize = 8;
/// Largest number of measures of a finding in a report.
const MEASURES: usize = 3;
/// Longest line with commands, in characters: text that is cut ([`crate::visible`]) may end inside a quotation.
const MOST_SHOWN: usize = 1500;

/// A measure's value with its unit.
fn value(measure: &Measure) -> String {
    let whole = measure.value.max(0.0) as u64;
    match measure.unit {
        MeasureUnit::Ns => duration(whole),
        MeasureUnit::Bytes => size(whole),
        MeasureUnit::Count => grouped(whole),
        MeasureUnit::Percent => percent(measure.value),
        MeasureUnit::PerSecond => format!("{} a second", digits(measure.value)),
        MeasureUnit::Times => format!("{} times", digits(measure.value)),
    }
}

/// The measures, in one line.
pub fn evidence(finding: &Finding, most: usize) -> String {
    let all: Vec<String> =
        finding.evidence.iter().take(most).map(|one| format!("{} {}", one.name, value(one))).collect();
    all.join(", ")
}

/// A line for each measure with its source.
pub fn sources(finding: &Finding) -> Vec<String> {
    finding.evidence.iter().map(|one| format!("{}: {} ({})", one.name, value(one), one.source)).collect()
}

/// The line to type or to write; a message instead, if a name in the trace cannot be typed safely.
pub fn step(step: &Step) -> String {
    offered(step).unwrap_or_else(|why| why)
}

/// The line to type or to write, or why there is none.
fn offered(step: &Step) -> Result<String, String> {
    let typed = |word: &str, quoted: fn(&str) -> Option<String>| {
        quoted(word).ok_or_else(|| {
            format!("not offered: the trace has a name that cannot be typed safely: \"{}\"", crate::visible(word))
        })
    };
    let word = |word: &str| typed(word, quote::argument);
    match step {
        Step::Set { path, value } => {
            typed(path, quote::sysfs_file).and_then(|path| Ok(format!("echo {} > {path}", word(value)?)))
        }
        Step::Remount { target, options, .. } => typed(target, quote::mount_point)
            .and_then(|target| Ok(format!("mount -o remount,{} {target}", word(options)?))),
        Step::Run { command, names } => {
            let names: Result<Vec<String>, String> = names.iter().map(|name| word(name)).collect();
            names.map(|names| [vec![command.clone()], names].concat().join(" "))
        }
        Step::Code { line } => Ok(line.clone()),
    }
}

/// The gain of a piece of advice.
pub fn gain(remedy: &Remedy) -> String {
    match &remedy.gain {
        Evidence::Known(gain) => {
            let verb = if gain.of.starts_with("bytes ") { "fall" } else { "falls" };
            format!("{} {verb} by {} to {} %", gain.of, digits(gain.least_percent), digits(gain.most_percent))
        }
        Evidence::Unknown(why) if why.next.is_empty() => format!("unknown: {}", why.missing),
        Evidence::Unknown(why) => format!("unknown: {}; {}", why.missing, why.next),
    }
}

/// A line of a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    pub text: String,
    /// Commands after the text. A line break inside would turn the rest into a second command.
    pub typed: Vec<Typed>,
    /// Words of the text that are typed: mount options.
    options: Vec<String>,
}

/// A step to be typed or written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Typed {
    pub text: String,
    /// The step is C or SQL, which continues on the next line without a backslash.
    pub is_code: bool,
    /// A message in place of a command.
    is_refused: bool,
}

impl Line {
    fn of(text: String) -> Line {
        Line { text, typed: Vec::new(), options: Vec::new() }
    }

    /// The text without commands, if they do not fit.
    pub fn without_commands(&self) -> String {
        let text = self.text.trim_end_matches(':');
        format!("{text}. The commands are too long for this line: flashscope advise TRACE")
    }

    /// Text and commands in one line.
    pub fn joined(&self) -> String {
        let typed = self.typed.iter().map(|one| one.text.as_str());
        [self.text.as_str()].into_iter().chain(typed).collect::<Vec<_>>().join(" ")
    }

    /// As markup: what is typed is in monospace.
    pub fn markup(&self) -> String {
        let word = |word: &str| {
            let option = word.trim_end_matches([',', ':', '.']);
            match self.options.iter().any(|one| one == option) {
                true => code(option) + &escape(&word[option.len()..]),
                false => escape(word),
            }
        };
        let text = match self.options[..] {
            [] => escape(&self.text),
            _ => self.text.split(' ').map(word).collect::<Vec<_>>().join(" "),
        };
        let step = |step: &Typed| if step.is_refused { escape(&step.text) } else { code(&step.text) };
        std::iter::once(text).chain(self.typed.iter().map(step)).collect::<Vec<_>>().join(" ")
    }
}

/// Typed text as markup.
fn code(text: &str) -> String {
    format!("<code>{}</code>", escape(text))
}

/// The lines about a finding in a report: at most five, the finding first. The advice, with semicolons between its steps.
pub fn lines(finding: &Finding) -> Vec<Line> {
    let mut lines = vec![Line::of(finding.what.clone())];
    if !finding.cause.is_empty() {
        lines.push(Line::of(finding.cause.clone()));
    }
    if !finding.advice.is_empty() && !finding.evidence.is_empty() {
        lines.push(Line::of(format!("Evidence: {}.", evidence(finding, MEASURES))));
    }
    if let Some(first) = finding.advice.first() {
        lines.push(advice(first));
        lines.push(Line::of(format!("Gain: {}.", gain(first))));
    }
    if let Some(why) = &finding.uncertain {
        match lines.len() {
            5 => lines[4].text += &format!(" Uncertain: {why}."),
            _ => lines.push(Line::of(format!("Uncertain: {why}."))),
        }
    }
    lines
}

/// What to do, and the steps of it with a semicolon between them.
fn advice(remedy: &Remedy) -> Line {
    let of = |one: &Step| {
        let line = offered(one);
        let is_refused = line.is_err();
        Typed { text: line.unwrap_or_else(|why| why), is_code: matches!(one, Step::Code { .. }), is_refused }
    };
    let mut typed: Vec<Typed> = remedy.steps.iter().map(of).collect();
    let options = remedy.steps.iter().filter_map(|one| match one {
        Step::Remount { options, .. } => Some(options.split(',').map(str::to_owned)),
        _ => None,
    });
    let options = options.flatten().collect();
    let last = typed.len().saturating_sub(1);
    // C and SQL lines end with a semicolon already.
    typed[..last].iter_mut().filter(|step| !step.text.ends_with(';')).for_each(|step| step.text.push(';'));
    let end = if typed.is_empty() { "." } else { ":" };
    let line = Line { text: format!("Do: {}{end}", remedy.what), typed, options };
    if line.joined().chars().count() <= MOST_SHOWN {
        return line;
    }
    Line::of(line.without_commands())
}

/// The line after a list of findings: how to see the rest.
pub fn more(findings: &[Finding], shown: usize) -> Option<String> {
    let left = findings.len().saturating_sub(shown);
    let advice = findings.iter().any(|finding| !finding.advice.is_empty());
    match (left, advice) {
        (0, false) => None,
        (0, true) => Some("Risks, sources and further advice: flashscope advise TRACE".to_owned()),
        (left, _) => Some(format!("{} more: flashscope advise TRACE", grouped(left as u64))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_a_trace_are_no_commands() {
        let remount =
            |target: &str| Step::Remount { target: target.into(), options: "noatime".into(), undo: "".into() };
        assert_eq!(step(&remount("/data")), "mount -o remount,noatime /data");
        assert_eq!(step(&remount("/d; rm -rf /")), "mount -o remount,noatime '/d; rm -rf /'");
        for target in ["/a\nrm", "-a", "a", ""] {
            assert!(step(&remount(target)).starts_with("not offered"), "{target:?}");
        }
        let set = |disk: &str| Step::Set { path: format!("/sys/block/{disk}/queue/scheduler"), value: "bfq".into() };
        assert_eq!(step(&set("cciss!c0d0")), "echo bfq > '/sys/block/cciss!c0d0/queue/scheduler'");
        assert_eq!(step(&set("$(id)")), "echo bfq > '/sys/block/$(id)/queue/scheduler'");
        // Root would write through a link that another user put below it.
        for disk in ["../../tmp/x", "..", ".", "", "a/../../../tmp", "a\u{202e}"] {
            assert!(step(&set(disk)).starts_with("not offered"), "{disk:?}: {}", step(&set(disk)));
        }
        let run = |name: &str| Step::Run { command: "cryptsetup refresh".into(), names: vec![name.into()] };
        assert_eq!(step(&run("a b'c")), r"cryptsetup refresh 'a b'\''c'");
        for name in ["--help", "/sys/block/../../tmp/x/queue/max_sectors_kb", &"x".repeat(4096)] {
            assert!(step(&run(name)).starts_with("not offered"), "{name}");
        }
        let set = Step::Set { path: "/sys/block/sda/queue/scheduler".into(), value: "mq-deadline".into() };
        assert_eq!(step(&set), "echo mq-deadline > /sys/block/sda/queue/scheduler");
    }

    #[test]
    fn what_is_typed_is_code_in_markup() {
        let of = |what: &str, steps: Vec<Step>| {
            let gain = Evidence::unknown("", "");
            advice(&Remedy { what: what.to_owned(), steps, gain, risk: String::new() }).markup()
        };
        let remount =
            |target: &str| Step::Remount { target: target.into(), options: "noatime".into(), undo: "".into() };
        assert_eq!(
            of("Mount with noatime", vec![remount("/a&b")]),
            "Do: Mount with <code>noatime</code>: <code>mount -o remount,noatime &#39;/a&amp;b&#39;</code>"
        );
        let lines = ["if (++n < 10) sync(fd)", "write(fd, \"<b>\", 3);"].map(|line| Step::Code { line: line.into() });
        assert_eq!(
            of("Sync <less>", lines.into()),
            "Do: Sync &lt;less&gt;: <code>if (++n &lt; 10) sync(fd);</code> <code>write(fd, &quot;&lt;b&gt;&quot;, 3);</code>"
        );
        // A reason and a sentence are no code.
        assert!(!of("Mount it so", vec![remount("<b>")]).contains("<code>"));
        assert_eq!(of("Add memory", Vec::new()), "Do: Add memory.");
        assert_eq!(Line::of("noatime <b>".into()).markup(), "noatime &lt;b&gt;");
    }

    /// The words of a line as a shell takes them; `None`: no line of a shell.
    fn words(line: &str) -> Option<Vec<String>> {
        let shell = |arguments: &[&str]| {
            let mut shell = std::process::Command::new("/bin/sh");
            shell.args(arguments).current_dir("/").stdin(std::process::Stdio::null()).output().expect("a shell")
        };
        let parsed = shell(&["-n", "-c", line]);
        // A redirection is a word of its own.
        let listed = shell(&["-c", &format!("printf '%s\\0' {}", line.replacen(" > ", " '>' ", 1))]);
        let all = parsed.status.success() && listed.status.success() && listed.stderr.is_empty();
        all.then(|| String::from_utf8_lossy(&listed.stdout).split_terminator('\0').map(str::to_owned).collect())
    }

    /// A name of the trace is exactly one word of what is to be typed, unchanged; or nothing is offered.
    #[test]
    fn a_shell_finds_each_name_as_one_word() {
        const OFFERED: [&str; 27] = [
            "plain", "a b", "a  b ", "it's", "''", "a\"b", "\"", "\\", "a\\nb", "a\\", "$(id)", "${IFS}", "$HOME",
            "`id`", "; id", "& id", "| id", "> x", "#", "a#b", "*", "~root", "!x", "{a,b}", "%n%s", "a=b", "é漢",
        ];
        const REFUSED: [&str; 9] =
            ["a\nid", "a\rb", "a\tb", "\u{1b}[2J", "\u{202e}x", "\u{2066}x", "\u{9b}2J", "\0", "\u{7f}"];
        type Make = fn(&str) -> (Step, String);
        let kinds: [Make; 7] = [
            |name| (Step::Run { command: "dmsetup table".into(), names: vec![name.into()] }, name.into()),
            |name| (Step::Run { command: "ionice -c 3 -p".into(), names: vec!["1".into(), name.into()] }, name.into()),
            |name| {
                let path = format!("/mnt/{name}");
                (Step::Run { command: "fstrim".into(), names: vec![path.clone()] }, path)
            },
            |name| {
                let path = format!("/sys/block/{name}/queue/max_sectors_kb");
                (Step::Run { command: "echo 1280 | tee".into(), names: vec![path.clone()] }, path)
            },
            |name| {
                let target = format!("/mnt/{name}");
                (Step::Remount { target: target.clone(), options: "noatime".into(), undo: String::new() }, target)
            },
            |name| {
                let path = format!("/sys/block/{name}/queue/scheduler");
                (Step::Set { path: path.clone(), value: "bfq".into() }, path)
            },
            |name| (Step::Set { path: "/sys/block/sda/queue/scheduler".into(), value: name.into() }, name.into()),
        ];
        for (at, make) in kinds.iter().enumerate() {
            for name in OFFERED {
                let (made, wanted) = make(name);
                let line = step(&made);
                // What follows a pipe is another command's.
                let line = line.strip_prefix("echo 1280 | ").unwrap_or(&line);
                let found = words(line).unwrap_or_else(|| panic!("{at}, {name:?}: {line}"));
                assert_eq!(
                    found.iter().filter(|word| **word == wanted).count(),
                    1,
                    "{at}, {name:?}: {line}: {found:?}"
                );
                let fixed = words(&step(&make("plain").0).replace("echo 1280 | ", "")).expect("a line");
                assert_eq!(found.len(), fixed.len(), "{at}, {name:?}: {line}: {found:?}");
            }
            for name in REFUSED {
                let line = step(&make(name).0);
                assert!(line.starts_with("not offered: "), "{at}, {name:?}: {line}");
                assert!(!line.chars().any(flashscope_output::acts), "{at}, {name:?}: {line:?}");
            }
        }
        // These would be options, or lead elsewhere.
        for (at, make) in kinds.iter().enumerate() {
            let names: &[&str] =
                if matches!(at, 0 | 1 | 6) { &["-rf", "--help", "/a/../b"] } else { &["..", "../../etc", "."] };
            for name in names {
                let line = step(&make(name).0);
                assert!(line.starts_with("not offered: "), "{at}, {name:?}: {line}");
            }
        }
    }
}
