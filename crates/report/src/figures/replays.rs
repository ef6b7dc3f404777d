//! Figures of replays: the applications' requests over time (figures 5 to 7 of Hasegawa et al.), and the costs and gains of each lever.

use super::{Figure, WIDTH, io};
use crate::replays_view::best;
use crate::svg::{Anchor, Rect, Scale, Svg};
use flashscope_study::replays::ReplaysResult;

const LEFT: f64 = 84.0;
const HEIGHT: f64 = 260.0;

pub fn replays_study(result: &ReplaysResult) -> Vec<Figure> {
    let mut figures = Vec::new();
    for group in &result.groups {
        let Some(report) = &group.report else { continue };
        for figure in io::figures(report) {
            let id = format!("io-{}", group.name.replace('.', "-"));
            let svg = figure.svg.replace(&figure.id, &id);
            figures.push(Figure { id, svg, title: format!("{}: {}", group.name, figure.title), ..figure });
        }
    }
    let mut cases: Vec<(&str, &str)> = Vec::new();
    for lever in &result.levers {
        let case = (lever.case.as_str(), lever.kernel.as_str());
        if !cases.contains(&case) {
            cases.push(case);
            figures.extend(pareto(result, case));
        }
    }
    figures
}

/// The application's wait over the throughput of the others, one mark per lever. The levers that no other lever beats are joined by a line.
fn pareto(result: &ReplaysResult, (case, kernel): (&str, &str)) -> Option<Figure> {
    let of_case = |index: &usize| {
        let lever = &result.levers[*index];
        lever.case == case && lever.kernel == kernel && lever.wait_ms.is_some()
    };
    let wait = |index: usize| result.levers[index].wait_ms.unwrap_or_default();
    let shown: Vec<usize> = (0..result.levers.len()).filter(of_case).collect();
    let most = |value: &dyn Fn(usize) -> f64| shown.iter().map(|&i| value(i)).fold(0.0, f64::max);
    let (waits, rates) = (most(&|i| wait(i)[2]), most(&|i| result.levers[i].others_mib_s[2]));
    if shown.len() < 2 || waits <= 0.0 || rates <= 0.0 {
        return None;
    }
    let area = Rect { x: LEFT, y: 16.0, width: WIDTH - LEFT - 120.0, height: HEIGHT };
    let x = Scale::linear((0.0, rates * 1.05), (area.x, area.right()));
    // A run beside others may be slightly shorter than the run alone.
    let least = shown.iter().map(|&i| wait(i)[1]).fold(0.0, f64::min);
    let y = Scale::linear((least * 1.05, waits * 1.05), (area.bottom(), area.y));
    let mut svg = Svg::new(WIDTH, area.bottom() + 48.0);
    for tick in y.ticks(6) {
        svg.line(if tick == 0.0 { "zero" } else { "grid" }, area.x, y.at(tick), area.right(), y.at(tick));
        svg.text(area.x - 8.0, y.at(tick) + 4.0, "tick", Anchor::End, &format!("{tick}"));
    }
    for tick in x.ticks(8) {
        svg.text(x.at(tick), area.bottom() + 18.0, "tick", Anchor::Middle, &format!("{tick}"));
    }
    let best: Vec<usize> = best(result).into_iter().filter(of_case).collect();
    let mut front: Vec<(f64, f64)> =
        best.iter().map(|&i| (x.at(result.levers[i].others_mib_s[0]), y.at(wait(i)[0]))).collect();
    front.sort_by(|a, b| a.0.total_cmp(&b.0));
    for pair in front.windows(2) {
        svg.line("axis", pair[0].0, pair[0].1, pair[1].0, pair[1].1);
    }
    for &index in &shown {
        let lever = &result.levers[index];
        let (at_x, at_y) = (x.at(lever.others_mib_s[0]), y.at(wait(index)[0]));
        svg.line("axis", at_x, y.at(wait(index)[1]), at_x, y.at(wait(index)[2]));
        svg.line("axis", x.at(lever.others_mib_s[1]), at_y, x.at(lever.others_mib_s[2]), at_y);
        let late = lever.late_frames.map_or_else(String::new, |frames| format!(", {:.0} late frames", frames[0]));
        let tip = format!(
            "{}: waits {:.1} ms for the others, others {:.1} MiB/s{late}",
            lever.lever,
            wait(index)[0],
            lever.others_mib_s[0]
        );
        let mark = Rect { x: at_x - 4.0, y: at_y - 4.0, width: 8.0, height: 8.0 };
        svg.rect(if best.contains(&index) { "f0" } else { "f1" }, mark, Some(&tip));
        svg.name(at_x + 8.0, at_y - 6.0, "tick", Anchor::Start, &lever.lever, 120.0);
    }
    svg.text(
        area.x + area.width / 2.0,
        area.bottom() + 40.0,
        "label",
        Anchor::Middle,
        "what the others read and write, MiB/s",
    );
    svg.vertical_text(16.0, area.y + area.height / 2.0, "label", "waits for the others, ms");
    let title = format!("{case} on Linux {kernel}: the application's wait over the others' throughput");
    let mark = match shown.iter().map(|&i| result.levers[i].runs).min() {
        Some(0 | 1) => "A mark a lever, of one start: the run-to-run variation is unknown",
        _ => "A mark a lever: the mean of the shifted runs, with their least and most",
    };
    let caption = format!(
        "{mark}. The wait is the extra time of reads beside the others, compared with reads alone with the same setting. Lower \
         and further right is better. The line joins the levers that no other lever beats in both."
    );
    Some(Figure::new(svg, format!("levers-{case}-{kernel}"), case, title, caption))
}
