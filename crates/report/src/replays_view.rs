//! Tables and sentences of a study of replays, for every renderer.

use crate::rows::Rows;
use crate::runs_view::View;
use crate::text::{duration, grouped};
use flashscope_study::replays::{LeverFound, ReplayGroup, ReplaysResult};

/// All tables, in order.
pub fn views(result: &ReplaysResult) -> Vec<View> {
    let all = [
        ("What protects the application", levers(&result.levers)),
        ("Levers that a kernel does not have", refused(result)),
        ("The application's read() calls", players(result)),
        ("Stages of its requests", stages(result)),
        ("Pattern of its requests", patterns(result)),
        ("Mean delay of its requests: together minus alone, and computed from the joint trace alone", delays(result)),
    ];
    all.into_iter().filter(|(_, rows)| !rows.rows.is_empty()).map(|(heading, rows)| View { heading, rows }).collect()
}

fn spread([mean, least, most]: [f64; 3]) -> String {
    format!("{mean:.1} ({least:.1} to {most:.1})")
}

/// A single start has no range.
fn over(starts: u64, values: [f64; 3]) -> String {
    if starts < 2 { format!("{:.1}", values[0]) } else { spread(values) }
}

fn levers(found: &[LeverFound]) -> Rows {
    let heads: &[&str] = &[
        "case",
        "lever",
        "kernel",
        "starts",
        "p99 of\nread(), ms",
        "reads beside\nothers, ms",
        "the same\nalone, ms",
        "waits for\nothers, ms",
        "late\nframes",
        "others,\nMiB/s",
    ];
    Rows::new("tttnnnnnnn", heads, found.iter(), usize::MAX, |lever| {
        vec![
            lever.case.clone(),
            lever.lever.clone(),
            lever.kernel.clone(),
            grouped(lever.runs),
            over(lever.runs, lever.p99_ms),
            over(lever.runs, lever.read_ms),
            lever.alone_ms.map_or_else(|| "unknown".to_owned(), |ms| format!("{ms:.1}")),
            lever.wait_ms.map_or_else(|| "unknown".to_owned(), |wait| over(lever.runs, wait)),
            lever.late_frames.map_or_else(|| "–".to_owned(), |frames| over(lever.runs, frames)),
            over(lever.runs, lever.others_mib_s),
        ]
    })
}

fn refused(result: &ReplaysResult) -> Rows {
    Rows::new("tttt", &["case", "lever", "kernel", "why"], result.refused.iter(), usize::MAX, |lever| {
        vec![lever.case.clone(), lever.lever.clone(), lever.kernel.clone(), lever.why.clone()]
    })
}

fn players(result: &ReplaysResult) -> Rows {
    let heads: &[&str] = &["run", "on", "reads", "p50", "p99", "longest", "all", "late\nframes", "flash\nreads"];
    Rows::new("ttnnnnnnn", heads, result.groups.iter(), usize::MAX, |group| {
        let player = &group.player;
        vec![
            group.name.clone(),
            format!("{}, {}", group.inputs.board, group.filesystem),
            grouped(player.reads),
            or_dash(player.p50_ns, duration),
            or_dash(player.p99_ns, duration),
            or_dash(player.max_ns, duration),
            duration(player.total_ns),
            or_dash(player.late_frames, grouped),
            or_dash(group.flash_reads, grouped),
        ]
    })
}

/// A dash without a measurement.
fn or_dash<T>(value: Option<T>, shown: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| "–".to_owned(), shown)
}

/// The runs that have a figure: the others are only in the JSON.
fn shown(result: &ReplaysResult) -> Vec<&ReplayGroup> {
    result.groups.iter().filter(|group| group.report.is_some()).collect()
}

fn stages(result: &ReplaysResult) -> Rows {
    let rows: Vec<Vec<String>> = shown(result)
        .into_iter()
        .flat_map(|group| {
            group.stages.iter().filter_map(|stage| {
                Some(vec![
                    group.name.clone(),
                    stage.name.clone(),
                    grouped(stage.n),
                    duration(stage.mean_ns?),
                    stage.percent.map_or_else(String::new, |percent| format!("{percent:.2} %")),
                ])
            })
        })
        .collect();
    Rows { kinds: "ttnnn", heads: &["run", "stage", "n", "mean", "of Q2C"], rows, more: 0 }
}

fn patterns(result: &ReplaysResult) -> Rows {
    let heads: &[&str] = &[
        "run",
        "reads",
        "most\nhave",
        "of all",
        "go on where the\nlast one ended",
        "breaks",
        "writes",
        "bursts",
        "half of it\nafter",
    ];
    let rows = shown(result)
        .into_iter()
        .filter_map(|group| {
            let pattern = group.pattern.as_ref()?;
            Some(vec![
                group.name.clone(),
                grouped(pattern.reads),
                or_dash(pattern.common_bytes, |bytes| format!("{} KiB", bytes / 1024)),
                or_dash(pattern.common_percent, |percent| format!("{percent:.1} %")),
                or_dash(pattern.sequential_percent, |percent| format!("{percent:.1} %")),
                grouped(pattern.breaks),
                grouped(pattern.writes),
                grouped(pattern.bursts),
                or_dash(pattern.half_ns, duration),
            ])
        })
        .collect();
    Rows { kinds: "tnnnnnnnn", heads, rows, more: 0 }
}

fn delays(result: &ReplaysResult) -> Rows {
    let figure = |group: &ReplayGroup, name: &str| result.figures.get(&format!("{}.{name}", group.name)).copied();
    let micro = |value: Option<f64>| value.map_or_else(|| "unknown".to_owned(), |us| format!("{us:.1} µs"));
    let rows = result
        .groups
        .iter()
        .filter_map(|group| {
            let measured = figure(group, "delay_measured_us")?;
            let within = match figure(group, "delay_within") {
                Some(1.0) => "yes",
                Some(_) => "no",
                None => "unknown",
            };
            Some(vec![
                group.name.clone(),
                micro(Some(measured)),
                micro(figure(group, "delay_told_us")),
                micro(figure(group, "behind_us")),
                within.to_owned(),
            ])
        })
        .collect();
    let heads: &[&str] = &["run", "measured", "reported", "of that passed\nbehind others", "within 5 %\nor 20 µs"];
    Rows { kinds: "tnnnt", heads, rows, more: 0 }
}

/// The levers that no other lever beats in both respects, by case and kernel: shortest wait for a given throughput of the others.
pub fn best(result: &ReplaysResult) -> Vec<usize> {
    let same = |a: usize, b: usize| {
        let (a, b) = (&result.levers[a], &result.levers[b]);
        a.case == b.case && a.kernel == b.kernel
    };
    let beaten = |a: usize, b: usize| {
        let (a, b) = (&result.levers[a], &result.levers[b]);
        let (Some([wait_a, ..]), Some([wait_b, ..])) = (a.wait_ms, b.wait_ms) else { return false };
        wait_b <= wait_a
            && b.others_mib_s[0] >= a.others_mib_s[0]
            && (wait_b, b.others_mib_s[0]) != (wait_a, a.others_mib_s[0])
    };
    let all = 0..result.levers.len();
    all.clone().filter(|&a| all.clone().all(|b| !same(a, b) || !beaten(a, b))).collect()
}

/// A recommended lever leaves the others at least this part of their throughput.
const OTHERS_KEEP: f64 = 0.9;

/// A mean that is larger by up to this part counts as equal.
const SAME: f64 = 0.05;

/// One sentence for each case and kernel: the lever to use, if its gain is beyond chance and nothing gets worse; and the applications of
/// other cases that it harms. Then one sentence for each other case in which that lever was tried.
pub fn recommendations(levers: &[LeverFound]) -> Vec<String> {
    let (mut said, mut followed) = (Vec::new(), Vec::new());
    let cases = cases(levers);
    for case in &cases {
        let Some(choice) = Choice::of(case) else { continue };
        let is_other = |other: &&Vec<&LeverFound>| other[0].case != case[0].case && other[0].kernel == case[0].kernel;
        let others = || cases.iter().filter(is_other);
        let harmed: Vec<String> = others().filter_map(|other| choice.harms(other)).collect();
        said.push(choice.sentence(&harmed));
        followed.extend(others().filter_map(|other| choice.followed_in(other)));
    }
    said.extend(followed);
    said
}

/// The levers of each case on each kernel. Without repetitions the variation is unknown.
fn cases(levers: &[LeverFound]) -> Vec<Vec<&LeverFound>> {
    let mut cases: Vec<Vec<&LeverFound>> = Vec::new();
    for lever in levers.iter().filter(|lever| lever.runs >= 2) {
        let same = |case: &&mut Vec<&LeverFound>| case[0].case == lever.case && case[0].kernel == lever.kernel;
        match cases.iter_mut().find(same) {
            Some(case) => case.push(lever),
            None => cases.push(vec![lever]),
        }
    }
    cases
}

fn width([_, least, most]: [f64; 3]) -> f64 {
    most - least
}

/// Better by more than chance. A few starts do not show the whole variation, so the ranges must be apart by the width of the wider one.
fn better(ours: [f64; 3], none: [f64; 3]) -> bool {
    none[1] - ours[2] > width(ours).max(width(none))
}

/// The worst start is worse than the worst one without a lever, by more than the starts without a lever differ. The lever's own range does
/// not matter: a wide range is a worse worst case.
fn worse(ours: [f64; 3], none: [f64; 3]) -> bool {
    ours[2] - none[2] > width(none).max(none[2] * SAME)
}

/// What gets worse with a lever although its application waits less.
fn harm(lever: &LeverFound, none: &LeverFound) -> Option<String> {
    if worse(lever.p99_ms, none.p99_ms) {
        let (ours, none) = (lever.p99_ms[2], none.p99_ms[2]);
        return Some(format!("the p99 of its reads becomes {ours:.1} ms in the worst start, not {none:.1}"));
    }
    let (late, none) = (lever.late_frames?, none.late_frames?);
    worse(late, none).then(|| format!("{:.1} of its frames are late in the worst start, not {:.1}", late[2], none[2]))
}

/// A lever with a known wait.
type Known<'a> = (&'a LeverFound, [f64; 3]);

fn with_wait<'a>(levers: &[&'a LeverFound]) -> Vec<Known<'a>> {
    levers.iter().filter_map(|lever| Some((*lever, lever.wait_ms?))).collect()
}

fn named<'a>(known: &[Known<'a>], name: &str) -> Option<Known<'a>> {
    known.iter().find(|(lever, _)| lever.lever == name).copied()
}

/// Mean, least and most of the wait with a lever, in percent of the wait without.
fn percent(wait: [f64; 3], none: [f64; 3]) -> Option<[f64; 3]> {
    (none[1] > 0.0).then(|| [wait[0] / none[0] * 100.0, wait[1] / none[2] * 100.0, wait[2] / none[1] * 100.0])
}

/// The recommendation for one case.
struct Choice<'a> {
    none: Known<'a>,
    /// The lever to use.
    used: Option<Known<'a>>,
    /// The lever with the shortest wait, whatever it costs the others.
    least: Option<Known<'a>>,
    /// Levers with which the application waits less, but something else gets worse.
    harmful: Vec<&'a LeverFound>,
}

impl<'a> Choice<'a> {
    fn of(levers: &[&'a LeverFound]) -> Option<Choice<'a>> {
        let known = with_wait(levers);
        let none = named(&known, "none")?;
        // The wait for the others is shorter, and not only because the lever makes the application slow when alone.
        let gains = |(lever, wait): &Known<'_>| {
            better(*wait, none.1) && lever.slower_ms.is_some_and(|slower| better(slower, none.1))
        };
        let (harmful, mut harmless): (Vec<Known<'a>>, Vec<Known<'a>>) =
            known.into_iter().filter(gains).partition(|(lever, _)| harm(lever, none.0).is_some());
        harmless.sort_by(|a, b| a.1[0].total_cmp(&b.1[0]));
        let keeps = |lever: &LeverFound| lever.others_mib_s[0] >= none.0.others_mib_s[0] * OTHERS_KEEP;
        let least = harmless.first().copied();
        let used = harmless.iter().copied().find(|(lever, _)| keeps(lever)).or(least);
        Some(Choice { none, used, least, harmful: harmful.into_iter().map(|(lever, _)| lever).collect() })
    }

    /// The application of another case that the recommended lever makes worse.
    fn harms(&self, other: &[&LeverFound]) -> Option<String> {
        let (used, _) = self.used?;
        let other = with_wait(other);
        let ((there, wait), (none, none_wait)) = (named(&other, &used.lever)?, named(&other, "none")?);
        let waits = || format!("the others cost its reads {} ms, not {}", spread(wait), spread(none_wait));
        let harm = worse(wait, none_wait).then(waits).or_else(|| harm(there, none))?;
        Some(format!("{} ({harm})", none.case))
    }

    /// `harmed`: applications of other cases that the recommended lever harms.
    fn sentence(&self, harmed: &[String]) -> String {
        let (none, none_wait) = self.none;
        let (case, kernel) = (&none.case, &none.kernel);
        let but: String = self
            .harmful
            .iter()
            .filter_map(|lever| Some(format!(" Not {}: {}.", lever.lever, harm(lever, none)?)))
            .collect();
        let (Some((used, wait)), Some((least, least_wait))) = (self.used, self.least) else {
            return format!(
                "{case} on Linux {kernel}: no lever makes the application wait less, for the others and in all, by more than chance, and \
                 its slowest reads no slower.{but}"
            );
        };
        let systemd = if used.systemd.is_empty() { String::new() } else { format!(" systemd: {}", used.systemd) };
        let further = if used.lever != least.lever && better(least_wait, wait) {
            format!(
                " With {} it waits {} ms, but the others get {:.1} MiB/s.",
                least.lever,
                spread(least_wait),
                least.others_mib_s[0]
            )
        } else {
            String::new()
        };
        let harms = match harmed {
            [] => String::new(),
            harmed => format!(", but not beside what it harms: {}", harmed.join("; ")),
        };
        format!(
            "{case} on Linux {kernel}: use {}{harms}. The others cost the application's reads {} ms, not {} (its reads beside them: {} ms, \
             not {}); the others get {:.1} MiB/s, not {:.1}.{further}{but}{systemd}",
            used.lever,
            spread(wait),
            spread(none_wait),
            spread(used.read_ms),
            spread(none.read_ms),
            used.others_mib_s[0],
            none.others_mib_s[0]
        )
    }

    /// This case's gain from its lever, beside the gain in another case in which the lever was tried.
    fn followed_in(&self, other: &[&LeverFound]) -> Option<String> {
        let (used, wait) = self.used?;
        let promised = percent(wait, self.none.1)?;
        let other = with_wait(other);
        let ((there, there_wait), (none, none_wait)) = (named(&other, &used.lever)?, named(&other, "none")?);
        let measured = percent(there_wait, none_wait)?;
        let text = |[mean, least, most]: [f64; 3]| format!("{mean:.0} ({least:.0} to {most:.0})");
        let verdict = if measured[1] > promised[2] {
            "less gain than promised"
        } else if measured[2] < promised[1] {
            "more gain than promised"
        } else {
            "the gain that was promised, as far as these starts show"
        };
        let but = harm(there, none).map_or_else(String::new, |harm| format!(" But {harm}."));
        Some(format!(
            "{} follows {} on Linux {}: with {} the wait is {} % of that without, promised {} %: {verdict}.{but}",
            none.case,
            used.case,
            none.kernel,
            used.lever,
            text(measured),
            text(promised)
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lever(name: &str, wait: [f64; 3], others: f64) -> LeverFound {
        LeverFound {
            case: "c".to_owned(),
            lever: name.to_owned(),
            kernel: "6.1".to_owned(),
            runs: 3,
            p99_ms: [0.0; 3],
            read_ms: wait,
            alone_ms: Some(0.0),
            wait_ms: Some(wait),
            slower_ms: Some(wait),
            late_frames: None,
            others_mib_s: [others; 3],
            systemd: format!("{name}=yes"),
        }
    }

    fn said(levers: &[LeverFound]) -> String {
        Choice::of(&levers.iter().collect::<Vec<_>>()).map(|choice| choice.sentence(&[])).unwrap_or_default()
    }

    #[test]
    fn a_lever_that_costs_the_others_little_comes_first() {
        let none = lever("none", [500.0, 450.0, 550.0], 30.0);
        let cheap = lever("cheap", [200.0, 180.0, 220.0], 29.0);
        let strict = lever("strict", [100.0, 90.0, 110.0], 3.0);
        let text = said(&[none.clone(), strict.clone(), cheap]);
        assert!(
            text.contains("use cheap. ") && text.contains("With strict it waits 100.0 (90.0 to 110.0) ms"),
            "{text}"
        );
        assert!(text.ends_with("systemd: cheap=yes"), "{text}");
        assert!(said(&[none.clone(), strict]).contains("use strict. "), "nothing else helps");
        assert_eq!(said(&[lever("other", [1.0; 3], 1.0)]), "", "nothing to compare with");
        let slow_alone =
            LeverFound { slower_ms: Some([700.0, 690.0, 710.0]), ..lever("slow", [100.0, 90.0, 110.0], 30.0) };
        assert!(said(&[none, slow_alone]).contains("no lever"), "it takes longer in all");
        let unknown = |name| LeverFound { wait_ms: None, ..lever(name, [0.0; 3], 30.0) };
        assert_eq!(said(&[unknown("none"), unknown("other")]), "", "no run alone");
    }

    /// Sentences of the case `c` and of `d`, where the others' levers were tried.
    fn followed(c: &[LeverFound], d: &[LeverFound]) -> Vec<String> {
        let d = d.iter().map(|lever| LeverFound { case: "d".to_owned(), ..lever.clone() });
        let levers: Vec<LeverFound> = c.iter().cloned().chain(d).collect();
        recommendations(&levers)
    }

    #[test]
    fn a_recommendation_that_was_followed_elsewhere_stands_beside_its_promise() {
        let none = lever("none", [500.0, 450.0, 550.0], 30.0);
        let good = lever("good", [200.0, 180.0, 220.0], 29.0);
        for (there, verdict) in [
            ([70.0, 60.0, 80.0], "70 (55 to 89) % of that without, promised 40 (33 to 49) %: less gain than promised."),
            (
                [50.0, 45.0, 60.0],
                "50 (41 to 67) % of that without, promised 40 (33 to 49) %: the gain that was promised, as far as these starts show.",
            ),
            ([20.0, 10.0, 25.0], "20 (9 to 28) % of that without, promised 40 (33 to 49) %: more gain than promised."),
        ] {
            let said = followed(
                &[none.clone(), good.clone()],
                &[lever("none", [100.0, 90.0, 110.0], 30.0), lever("good", there, 30.0)],
            );
            let wanted = format!("d follows c on Linux 6.1: with good the wait is {verdict}");
            assert!(said.contains(&wanted), "{said:?}");
        }
        let slow = LeverFound { p99_ms: [9.0, 8.0, 10.0], ..lever("good", [45.0, 40.0, 46.0], 30.0) };
        let said = followed(&[none.clone(), good.clone()], &[lever("none", [100.0, 90.0, 110.0], 30.0), slow]);
        assert!(
            said.last().is_some_and(|last| last
                .ends_with("starts show. But the p99 of its reads becomes 10.0 ms in the worst start, not 0.0.")),
            "{said:?}"
        );
        // Nothing to compare with: no such lever there, one start, another kernel.
        let one = LeverFound { runs: 1, ..good.clone() };
        let other = LeverFound { kernel: "newest".to_owned(), ..good.clone() };
        for there in [lever("bad", [1.0; 3], 30.0), one, other] {
            let said = followed(&[none.clone(), good.clone()], &[lever("none", [100.0, 90.0, 110.0], 30.0), there]);
            assert!(!said.iter().any(|said| said.contains("follows")), "{said:?}");
        }
    }

    /// Raw values of the study of applications.
    const MEASURED: &str = include_str!("../../../bench/runs/2026-11-27-levers.csv");

    /// A lever's three starts, compared with the application alone from the same moments.
    fn measured(case: &str, alone: &str, name: &str) -> LeverFound {
        let rows: Vec<Vec<&str>> = MEASURED.lines().skip(1).map(|line| line.split(',').collect()).collect();
        let ms = |row: &[&str], column: usize| row[column].parse::<f64>().expect("a number") / 1e3;
        let spread = |values: &[f64]| {
            let most = values.iter().copied().fold(f64::MIN, f64::max);
            let least = values.iter().copied().fold(f64::MAX, f64::min);
            [values.iter().sum::<f64>() / values.len() as f64, least, most]
        };
        let starts: Vec<&Vec<&str>> =
            rows.iter().filter(|row| row[0].starts_with(&format!("{case}.{name}.s"))).collect();
        assert_eq!(starts.len(), 3, "{case}.{name}");
        let longer = |lever: &str| {
            let of = |start: &&Vec<&str>| {
                let same = |row: &&Vec<&str>| row[0] == format!("{alone}.{lever}") && row[2] == start[2];
                ms(start, 3) - ms(rows.iter().find(same).expect("a run alone"), 3)
            };
            spread(&starts.iter().map(of).collect::<Vec<_>>())
        };
        let of = |column: usize| spread(&starts.iter().map(|row| ms(row, column)).collect::<Vec<_>>());
        LeverFound {
            case: case.to_owned(),
            p99_ms: of(6),
            read_ms: of(3),
            slower_ms: Some(longer("none")),
            ..lever(name, longer(name), of(13)[0] * 1e3)
        }
    }

    #[test]
    fn a_sync_mount_gains_for_the_queries_what_it_promises_and_bfq_does_not() {
        let levers: Vec<LeverFound> = [("with-writer", "alone"), ("queries-with-writer", "queries-alone")]
            .into_iter()
            .flat_map(|(case, alone)| ["none", "sync-mount", "bfq"].map(|name| measured(case, alone, name)))
            .collect();
        let without = |name: &str| levers.iter().filter(|lever| lever.lever != name).cloned().collect::<Vec<_>>();
        let said = recommendations(&without("sync-mount"));
        // Who reads the sentence that names the lever reads whom it harms.
        let harm = "with-writer on Linux 6.1: use bfq, but not beside what it harms: queries-with-writer (the others cost its reads \
                    439.2 (436.3 to 441.0) ms, not 327.3 (311.9 to 346.5)). The others cost";
        assert!(said[0].starts_with(harm), "{said:?}");
        assert!(said[1].starts_with("queries-with-writer on Linux 6.1: no lever "), "{said:?}");
        assert!(said[2].contains("with bfq the wait is 134 (126 to 141) % of that without, promised 63 ("), "{said:?}");
        assert!(said[2].contains("less gain than promised."), "{said:?}");
        let said = recommendations(&without("bfq"));
        assert!(said[0].starts_with("with-writer on Linux 6.1: use sync-mount. "), "{said:?}");
        assert!(said[1].starts_with("queries-with-writer on Linux 6.1: use sync-mount. "), "{said:?}");
        assert_eq!(
            said[2],
            "queries-with-writer follows with-writer on Linux 6.1: with sync-mount the wait is 73 (68 to 79) % of that without, promised \
             66 (64 to 69) %: the gain that was promised, as far as these starts show."
        );
    }

    #[test]
    fn one_start_has_no_range_and_no_recommendation() {
        let one = |name, wait| LeverFound { runs: 1, ..lever(name, wait, 30.0) };
        let found = [one("none", [500.0; 3]), one("good", [100.0; 3])];
        assert_eq!(recommendations(&found), Vec::<String>::new());
        assert_eq!(levers(&found).rows[1][3..6], ["1", "0.0", "100.0"]);
        let three = [lever("good", [100.0; 3], 30.0)];
        assert_eq!(levers(&three).rows[0][3..6], ["3", "0.0 (0.0 to 0.0)", "100.0 (100.0 to 100.0)"]);
    }

    #[test]
    fn ranges_that_are_not_apart_by_their_width_are_chance() {
        let none = lever("none", [500.0, 450.0, 550.0], 30.0);
        // Ranges: 450 to 550 without; what must be left between is 100, or the lever's own width.
        for (wait, used) in [
            ([440.0, 300.0, 460.0], false),
            ([355.0, 345.0, 365.0], false),
            ([340.0, 330.0, 345.0], true),
            ([200.0, 100.0, 295.0], false),
            ([200.0, 140.0, 260.0], true),
        ] {
            let text = said(&[none.clone(), lever("l", wait, 30.0)]);
            assert_eq!(text.contains("use l. "), used, "{text}");
        }
        let text = said(&[none, lever("l", [200.0, 140.0, 260.0], 30.0)]);
        assert!(text.contains("200.0 (140.0 to 260.0) ms, not 500.0 (450.0 to 550.0)"), "{text}");
    }

    #[test]
    fn a_lever_whose_slowest_reads_or_frames_get_worse_is_not_recommended() {
        let none = LeverFound {
            p99_ms: [14.9, 14.3, 16.1],
            late_frames: Some([1.0, 0.0, 2.0]),
            ..lever("none", [500.0, 450.0, 550.0], 30.0)
        };
        let with = |name, p99_ms, late| LeverFound {
            p99_ms,
            late_frames: Some(late),
            ..lever(name, [100.0, 90.0, 110.0], 30.0)
        };
        let slow = with("slow", [44.8, 32.4, 52.5], [0.0; 3]);
        let text = said(&[none.clone(), slow.clone()]);
        assert!(text.contains("no lever"), "{text}");
        assert!(
            text.ends_with("Not slow: the p99 of its reads becomes 52.5 ms in the worst start, not 16.1."),
            "{text}"
        );
        let late = with("late", [14.0; 3], [4.0, 1.0, 6.0]);
        let text = said(&[none.clone(), late]);
        assert!(text.contains("no lever") && text.contains("6.0 of its frames are late in the worst start"), "{text}");
        // A range that reaches down to what was without a lever has a worse worst case all the same.
        assert!(said(&[none.clone(), with("wide", [24.5, 15.3, 29.3], [0.0; 3])]).contains("no lever"));
        let even = with("even", [15.0, 13.0, 17.5], [2.0, 1.0, 3.0]);
        let text = said(&[none.clone(), slow, even]);
        assert!(text.contains("use even. ") && text.contains("Not slow: "), "{text}");
        let no_film = LeverFound { late_frames: None, ..with("map", [14.0; 3], [0.0; 3]) };
        assert!(said(&[none, no_film]).contains("use map. "));
    }
}
