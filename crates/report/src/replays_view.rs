//! A study of replays as tables, for every renderer.

use crate::rows::Rows;
use crate::runs_view::View;
use crate::text::{duration, grouped};
use flashscope_study::replays::{LeverFound, ReplayGroup, ReplaysResult};

/// What there is to show, in order.
pub fn views(result: &ReplaysResult) -> Vec<View> {
    let all = [
        ("What protects the application", levers(result)),
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

fn levers(result: &ReplaysResult) -> Rows {
    let heads: &[&str] = &[
        "case",
        "lever",
        "kernel",
        "p99 of\nread(), ms",
        "reads beside\nothers, ms",
        "the same\nalone, ms",
        "waits for\nothers, ms",
        "late\nframes",
        "others,\nMiB/s",
    ];
    Rows::new("tttnnnnnn", heads, result.levers.iter(), usize::MAX, |lever| {
        vec![
            lever.case.clone(),
            lever.lever.clone(),
            lever.kernel.clone(),
            spread(lever.p99_ms),
            spread(lever.read_ms),
            lever.alone_ms.map_or_else(|| "unknown".to_owned(), |ms| format!("{ms:.1}")),
            lever.wait_ms.map_or_else(|| "unknown".to_owned(), spread),
            lever.late_frames.map_or_else(|| "–".to_owned(), spread),
            spread(lever.others_mib_s),
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
        let some = |value: Option<u64>| value.map_or_else(|| "–".to_owned(), grouped);
        vec![
            group.name.clone(),
            format!("{}, {}", group.inputs.board, group.filesystem),
            grouped(player.reads),
            duration(player.p50_ns),
            duration(player.p99_ns),
            duration(player.max_ns),
            duration(player.total_ns),
            some(player.late_frames),
            some(group.flash_reads),
        ]
    })
}

/// Of the runs that have a figure: the others' are in the JSON.
fn shown(result: &ReplaysResult) -> Vec<&ReplayGroup> {
    result.groups.iter().filter(|group| group.report.is_some()).collect()
}

fn stages(result: &ReplaysResult) -> Rows {
    let rows: Vec<Vec<String>> = shown(result)
        .into_iter()
        .flat_map(|group| {
            group.stages.iter().filter(|stage| stage.n > 0).map(|stage| {
                vec![
                    group.name.clone(),
                    stage.name.clone(),
                    grouped(stage.n),
                    duration(stage.mean_ns),
                    stage.percent.map_or_else(String::new, |percent| format!("{percent:.2} %")),
                ]
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
                format!("{} KiB", pattern.common_bytes / 1024),
                format!("{:.1} %", pattern.common_percent),
                format!("{:.1} %", pattern.sequential_percent),
                grouped(pattern.breaks),
                grouped(pattern.writes),
                grouped(pattern.bursts),
                duration(pattern.half_ns),
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

/// The levers that no other beats in both, by case and kernel: the least wait for what the others get done.
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

/// The others keep this part of their throughput with a lever that is recommended first.
const OTHERS_KEEP: f64 = 0.9;

/// A mean that is this part larger counts as the same.
const SAME: f64 = 0.05;

/// A sentence a case and kernel: the lever to use, where its gain is beyond chance and nothing gets worse.
pub fn recommendations(result: &ReplaysResult) -> Vec<String> {
    let mut said: Vec<String> = Vec::new();
    let mut seen: Vec<(&str, &str)> = Vec::new();
    for lever in &result.levers {
        let key = (lever.case.as_str(), lever.kernel.as_str());
        // Without repetitions nothing says how far results differ by chance.
        if seen.contains(&key) || lever.runs < 2 {
            continue;
        }
        seen.push(key);
        let of_case: Vec<&LeverFound> =
            result.levers.iter().filter(|other| (other.case.as_str(), other.kernel.as_str()) == key).collect();
        said.extend(recommendation(key, &of_case));
    }
    said
}

fn width([_, least, most]: [f64; 3]) -> f64 {
    most - least
}

/// Better by more than chance: a few starts do not show all of it, so their ranges must be apart by the width of the wider one.
fn better(ours: [f64; 3], none: [f64; 3]) -> bool {
    none[1] - ours[2] > width(ours).max(width(none))
}

/// The worst start is worse than the worst one without a lever, by more than those differ. How far the lever's own starts differ is
/// no excuse: a wide range is a worse worst case.
fn worse(ours: [f64; 3], none: [f64; 3]) -> bool {
    ours[2] - none[2] > width(none).max(none[2] * SAME)
}

/// What gets worse with a lever although its application waits less.
fn harm(lever: &LeverFound, none: &LeverFound) -> Option<String> {
    if worse(lever.p99_ms, none.p99_ms) {
        return Some(format!("the p99 of its reads becomes {} ms, not {}", spread(lever.p99_ms), spread(none.p99_ms)));
    }
    let (late, none) = (lever.late_frames?, none.late_frames?);
    worse(late, none).then(|| format!("{} of its frames are late, not {}", spread(late), spread(none)))
}

fn recommendation((case, kernel): (&str, &str), levers: &[&LeverFound]) -> Option<String> {
    let known: Vec<(&LeverFound, [f64; 3])> =
        levers.iter().filter_map(|lever| Some((*lever, lever.wait_ms?))).collect();
    let (none, none_wait) = *known.iter().find(|(lever, _)| lever.lever == "none")?;
    // It waits less for the others, and not only because the lever makes it slow alone.
    type Known<'a> = Vec<&'a (&'a LeverFound, [f64; 3])>;
    let (harmful, harmless): (Known<'_>, Known<'_>) = known
        .iter()
        .filter(|(lever, wait)| {
            better(*wait, none_wait) && lever.slower_ms.is_some_and(|slower| better(slower, none_wait))
        })
        .partition(|(lever, _)| harm(lever, none).is_some());
    let keeps = |(lever, _): &&(&LeverFound, [f64; 3])| lever.others_mib_s[0] >= none.others_mib_s[0] * OTHERS_KEEP;
    let by_wait = |a: &&(&LeverFound, [f64; 3]), b: &&(&LeverFound, [f64; 3])| a.1[0].total_cmp(&b.1[0]);
    let but: String = harmful
        .iter()
        .filter_map(|(lever, _)| Some(format!(" Not {}: {}.", lever.lever, harm(lever, none)?)))
        .collect();
    let Some(&(least, least_wait)) = harmless.iter().copied().min_by(by_wait) else {
        return Some(format!(
            "{case} on Linux {kernel}: no lever makes the application wait less, for the others and in all, by more than chance, and its \
             slowest reads no slower.{but}"
        ));
    };
    let &(used, wait) = harmless.iter().copied().filter(keeps).min_by(by_wait).unwrap_or(&(least, least_wait));
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
    Some(format!(
        "{case} on Linux {kernel}: use {}. The others cost the application's reads {} ms, not {} (its reads beside them: {} ms, not {}); the \
         others get {:.1} MiB/s, not {:.1}.{further}{but}{systemd}",
        used.lever,
        spread(wait),
        spread(none_wait),
        spread(used.read_ms),
        spread(none.read_ms),
        used.others_mib_s[0],
        none.others_mib_s[0]
    ))
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
        recommendation(("c", "6.1"), &levers.iter().collect::<Vec<_>>()).unwrap_or_default()
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
            text.ends_with("Not slow: the p99 of its reads becomes 44.8 (32.4 to 52.5) ms, not 14.9 (14.3 to 16.1)."),
            "{text}"
        );
        let late = with("late", [14.0; 3], [4.0, 1.0, 6.0]);
        let text = said(&[none.clone(), late]);
        assert!(text.contains("no lever") && text.contains("4.0 (1.0 to 6.0) of its frames are late"), "{text}");
        // A range that reaches down to what was without a lever has a worse worst case all the same.
        assert!(said(&[none.clone(), with("wide", [24.5, 15.3, 29.3], [0.0; 3])]).contains("no lever"));
        let even = with("even", [15.0, 13.0, 17.5], [2.0, 1.0, 3.0]);
        let text = said(&[none.clone(), slow, even]);
        assert!(text.contains("use even. ") && text.contains("Not slow: "), "{text}");
        let no_film = LeverFound { late_frames: None, ..with("map", [14.0; 3], [0.0; 3]) };
        assert!(said(&[none, no_film]).contains("use map. "));
    }
}
