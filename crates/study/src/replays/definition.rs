//! The definition of a replay study, as in its file.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::script::Script;
use crate::definition::{Checked, Define, Filesystem};
use crate::size::Bytes;
use crate::statement::Statement;

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReplaysDefinition {
    pub name: String,
    pub title: String,
    pub question: String,
    pub replays: Replays,
    #[serde(default)]
    pub published: Vec<Statement>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Replays {
    pub kernel: Vec<String>,
    /// Settings of each board's disk; those of a case and a lever come after them.
    #[serde(default)]
    pub disk: BTreeMap<String, BTreeMap<String, String>>,
    pub case: Vec<Case>,
    #[serde(default)]
    pub lever: Vec<Lever>,
}

/// Scripts on a storage; each combination of kernel, lever and shift is one fresh boot.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// Prefix of its figures' names.
    pub name: String,
    pub board: String,
    pub filesystem: Filesystem,
    /// Built-in scripts from studies/applications (`flashscope study --help` does not list them), each with its start in seconds:
    /// `writer@4`. The first one is the application under study.
    pub scripts: Vec<String>,
    #[serde(default)]
    pub disk: BTreeMap<String, String>,
    /// RAM of the board.
    pub memory: Option<Bytes>,
    /// Length of the film that the first script plays, for late frames.
    pub film_s: Option<f64>,
    /// Later starts of the other scripts, seconds: one boot for each.
    #[serde(default = "no_shift")]
    pub shift_s: Vec<f64>,
    /// Names of levers; `none` is a valid one. Empty: the board's defaults.
    #[serde(default)]
    pub lever: Vec<String>,
    /// The case in which the same application ran alone.
    pub alone: Option<String>,
    /// Kernels that replace the study's.
    pub kernel: Option<Vec<String>>,
    /// Draw the requests over time.
    #[serde(default)]
    pub figure: bool,
}

fn no_shift() -> Vec<f64> {
    vec![0.0]
}

/// A way to protect the application from waiting for the others.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lever {
    pub name: String,
    #[serde(default)]
    pub disk: BTreeMap<String, String>,
    /// Mount options of a disk, such as sync.
    pub mount: Option<String>,
    /// Files below /sys or /proc/sys, and their values. A file below /sys/fs/cgroup belongs to the root of cgroup2.
    #[serde(default)]
    pub set: BTreeMap<String, String>,
    #[serde(default)]
    pub application: Change,
    #[serde(default)]
    pub others: Change,
    /// Time that the board sleeps first, seconds: io.max on a 32-bit kernel needs 300 s after boot.
    #[serde(default)]
    pub after_s: u64,
    /// Lines for systemd units with the same effect, for the page.
    #[serde(default)]
    pub systemd: String,
}

impl Lever {
    /// Whether the application makes other requests with this lever, also when it is alone.
    pub(super) fn changes_own_requests(&self) -> bool {
        self.mount.is_some() || self.set.keys().any(|path| path.ends_with("/read_ahead_kb"))
    }
}

/// Changes to a script's tasks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Change {
    pub nice: Option<i32>,
    pub ionice: Option<String>,
    /// Files of a cgroup for the tasks, with their values.
    #[serde(default)]
    pub cgroup: BTreeMap<String, String>,
}

/// A replay study that was read and checked.
pub type ReplaysStudy = Checked<ReplaysDefinition>;

const MOST_GROUPS: usize = 500;

macro_rules! scripts {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../../../../studies/applications/", $name, ".replay")))),*]
    };
}

/// The built-in scripts.
pub(super) const SCRIPTS: &[(&str, &str)] = scripts!(
    "everything-reader", "fsync-storm", "navit-fast", "navit-slow", "queries", "vlc-playlist", "vlc-single", "writer",
);

/// `writer@4.5`: the script's name, and its start in ns.
fn named(word: &str) -> Result<(&str, u64), String> {
    let Some((name, seconds)) = word.split_once('@') else { return Ok((word, 0)) };
    match seconds.parse::<f64>() {
        Ok(seconds) if (0.0..=3600.0).contains(&seconds) => Ok((name, (seconds * 1e9) as u64)),
        _ => Err(format!("script '{word}': after the @ come seconds, 0 to 3600")),
    }
}

/// The built-in script with this name, and its start.
pub(super) fn script(word: &str) -> Result<(Script, u64), String> {
    let (name, start_ns) = named(word)?;
    let (_, text) = SCRIPTS.iter().find(|(known, _)| *known == name).ok_or_else(|| {
        let known: Vec<&str> = SCRIPTS.iter().map(|(name, _)| *name).collect();
        format!("script '{name}': there are {}", known.join(", "))
    })?;
    Script::parse(name, text).map(|script| (script, start_ns)).map_err(|error| error.to_string())
}

impl Define for ReplaysDefinition {
    fn check(&self) -> Result<(), String> {
        check(&self.replays)
    }
}

fn check(replays: &Replays) -> Result<(), String> {
    if replays.kernel.is_empty() || replays.case.is_empty() {
        return Err("replays.kernel or replays.case is empty: name at least one".to_owned());
    }
    let is_name = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c));
    let odd = |word: &str| word.is_empty() || word.contains(['\n', '%']) || word.contains("..");
    for lever in &replays.lever {
        if !is_name(&lever.name) {
            return Err(format!("replays.lever '{}': its name needs letters, digits, - and _", lever.name));
        }
        if lever.mount.as_ref().is_some_and(|options| odd(options) || options.contains(' ')) {
            return Err(format!("replays.lever '{}': mount needs options with commas between them", lever.name));
        }
        if lever.set.iter().any(|(path, value)| {
            odd(path)
                || path.contains(' ')
                || odd(value)
                || !(path.starts_with("/sys/") || path.starts_with("/proc/sys/"))
        }) {
            return Err(format!(
                "replays.lever '{}': set needs files below /sys or /proc/sys, each with a value",
                lever.name
            ));
        }
    }
    // Each case is compared with all others, so their number is limited.
    if replays.case.len() > MOST_GROUPS || replays.lever.len() > MOST_GROUPS {
        return Err(format!("more than {MOST_GROUPS} cases or levers: split the study"));
    }
    let mut groups = 0;
    for case in &replays.case {
        let wrong = |why: String| Err(format!("replays.case '{}': {why}", case.name));
        if !is_name(&case.name) || replays.case.iter().filter(|other| other.name == case.name).count() > 1 {
            return wrong("a unique name is needed, of letters, digits, - and _".to_owned());
        }
        if case.scripts.is_empty() || case.shift_s.is_empty() {
            return wrong("scripts or shift_s is empty".to_owned());
        }
        for word in &case.scripts {
            if let Err(why) = script(word) {
                return wrong(why);
            }
        }
        if case.shift_s.iter().any(|shift| !(0.0..=3600.0).contains(shift)) || case.film_s.is_some_and(|s| s <= 0.0) {
            return wrong("shift_s needs 0 to 3600, film_s more than 0".to_owned());
        }
        if let Some(unknown) = case.lever.iter().find(|name| replays.lever.iter().all(|lever| lever.name != **name)) {
            return wrong(format!("there is no replays.lever '{unknown}'"));
        }
        if let Some(alone) = &case.alone
            && replays.case.iter().all(|other| other.name != *alone)
        {
            return wrong(format!("alone: there is no replays.case '{alone}'"));
        }
        groups += case.shift_s.len() * case.lever.len().max(1) * case.kernel.as_ref().unwrap_or(&replays.kernel).len();
    }
    if groups > MOST_GROUPS {
        return Err(format!("more than {MOST_GROUPS} boots: split the study"));
    }
    Ok(())
}
