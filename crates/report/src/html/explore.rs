//! The interactive part of a page: a timeline to zoom and select in, and tables that follow the selection.
//!
//! The script's data is in the page as JSON of bounded size. Without scripts this part stays hidden, and the rest of the page is complete.

use flashscope_analysis::block::IoPoints;
use serde::Serialize;
use std::collections::BTreeMap;

/// The script of all pages; `script-src` allows it by its hash.
pub const SCRIPT: &str = include_str!("explore.js");
/// Largest number of rows in the page's data, about 40 bytes each.
const MOST_ROWS: usize = 6_000;
/// Number of time bins at the beginning.
const TIME_BINS: u64 = 600;
/// Largest number of owners with names; an analysis distinguishes fewer.
const MOST_OWNERS: u16 = 32;
/// Longest name, in characters.
const MOST_NAME: usize = 120;

/// The script's input.
#[derive(Serialize)]
struct Data {
    /// A bin begins `bin * bin_ns` ns after the first bin's beginning.
    bin_ns: u64,
    bins: u64,
    devices: Vec<String>,
    owners: Vec<String>,
    kinds: Vec<&'static str>,
    /// Bin, device, kind, owner, bios, bytes, sum of Q2C in ns, longest Q2C in ns, whether they are below another device's bios (0 or 1).
    rows: Vec<[u64; 9]>,
    /// The command for a selection; the script fills in FROM and TO.
    command: String,
}

type Key = (u64, u16, u16, u16, bool);

/// The part's markup; empty if nothing was completed. `title` names the trace.
pub fn explore(points: &IoPoints, title: &str, begin_ns: u64) -> String {
    let first = points.points.iter().map(|point| point.time_ns).min();
    let (Some(first), Some(last)) = (first, points.points.iter().map(|point| point.time_ns).max()) else {
        return String::new();
    };
    let first = first.min(begin_ns.max(first.saturating_sub(points.bin_ns)));
    let mut bin_ns = ((last - first) / TIME_BINS + 1).max(points.bin_ns);
    let mut kinds: Vec<&'static str> = Vec::new();
    let mut owners: Vec<u16> = Vec::new();
    let rows = loop {
        let mut rows: BTreeMap<Key, [u64; 4]> = BTreeMap::new();
        for point in &points.points {
            let kind = number(&mut kinds, point.kind.plural());
            let owner = number(&mut owners, point.owner.min(MOST_OWNERS));
            let bin = (point.time_ns - first) / bin_ns;
            let sum = rows.entry((bin, point.device, kind, owner, point.below)).or_default();
            sum[0] += u64::from(point.bios);
            sum[1] = sum[1].saturating_add(point.bytes);
            sum[2] = sum[2].saturating_add(point.q2c_ns);
            sum[3] = sum[3].max(point.longest_q2c_ns);
            if rows.len() > MOST_ROWS {
                break;
            }
        }
        if rows.len() <= MOST_ROWS || bin_ns > last - first {
            break rows;
        }
        bin_ns = bin_ns.saturating_mul(2);
    };
    let name = |names: &[String], at: usize| {
        names.get(at).map_or_else(|| "?".to_owned(), |name| name.chars().take(MOST_NAME).collect())
    };
    let data = Data {
        bin_ns,
        bins: (last - first) / bin_ns + 1,
        devices: points.devices.iter().map(|device| device.chars().take(MOST_NAME).collect()).collect(),
        owners: owners
            .iter()
            .map(|&owner| match owner {
                MOST_OWNERS => "(further owners)".to_owned(),
                owner => name(&points.owners, usize::from(owner)),
            })
            .collect(),
        kinds,
        rows: rows
            .into_iter()
            .map(|((bin, device, kind, owner, below), [bios, bytes, q2c, longest])| {
                [bin, device.into(), kind.into(), owner.into(), bios, bytes, q2c, longest, below.into()]
            })
            .collect(),
        command: format!(
            "flashscope report {} --from FROM --to TO",
            flashscope_output::quote::shell_path(std::path::Path::new(title))
        ),
    };
    format!(
        "<section id=\"explore\" hidden aria-labelledby=\"explore-heading\">\n<h2 id=\"explore-heading\">Explore</h2>\n\
         <div id=\"explore-here\"></div>\n</section>\n<script type=\"application/json\" id=\"explore-data\">{}</script>\n",
        harmless(&serde_json::to_string(&data).expect("plain data serialises"))
    )
}

fn number<T: PartialEq>(all: &mut Vec<T>, one: T) -> u16 {
    let at = all.iter().position(|known| *known == one).unwrap_or_else(|| {
        all.push(one);
        all.len() - 1
    });
    u16::try_from(at).unwrap_or(u16::MAX)
}

/// JSON in which no text can end the element, open a comment or act on a terminal: such characters become `\u` escapes.
fn harmless(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        if matches!(c, '<' | '>' | '&') || crate::text::acts(c) {
            let mut units = [0; 2];
            c.encode_utf16(&mut units).iter().for_each(|unit| out += &format!("\\u{unit:04x}"));
        } else {
            out.push(c);
        }
    }
    out
}

/// A page without our script and its data, each of which must occur at most once: the rest must contain no other script.
#[cfg(test)]
pub(crate) fn without_scripts(page: &str) -> String {
    let page = page.replacen(&format!("<script>{SCRIPT}</script>"), "", 1);
    let Some((before, rest)) = page.split_once("<script type=\"application/json\" id=\"explore-data\">") else {
        return page;
    };
    let (data, after) = rest.split_once('<').expect("its end");
    assert!(serde_json::from_str::<serde_json::Value>(data).is_ok(), "{data}");
    format!("{before}{}", after.strip_prefix("/script>").expect("nothing else ends the data"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic;

    #[test]
    fn the_data_adds_up_and_cannot_leave_its_element() {
        let report = synthetic::block();
        let mut points = report.found.points;
        points.points[0].below = true;
        points.owners[0] = "</script><script>alert(1)//\u{202e}".into();
        let page = explore(&points, "a'b.dat", 0);
        let json =
            page.split_once("id=\"explore-data\">").expect("data").1.strip_suffix("</script>\n").expect("its end");
        assert!(!json.contains('<') && !json.contains('\u{202e}'), "{json}");
        let data: serde_json::Value = serde_json::from_str(json).expect("JSON");
        let rows = data["rows"].as_array().expect("rows");
        let sum = |at: usize| rows.iter().map(|row| row[at].as_u64().expect("a number")).sum::<u64>();
        assert_eq!(sum(4), points.points.iter().map(|point| u64::from(point.bios)).sum::<u64>());
        assert_eq!(sum(5), points.points.iter().map(|point| point.bytes).sum::<u64>());
        let below: u64 = points.points.iter().filter(|point| point.below).map(|point| point.bytes).sum();
        let shown = rows.iter().filter(|row| row[8] == 1).map(|row| row[5].as_u64().expect("a number")).sum::<u64>();
        assert!(below > 0 && shown == below, "{shown}, {below}");
        assert!(data["command"].as_str().is_some_and(|command| command.contains("--from FROM --to TO")));
        assert!(rows.iter().all(|row| row[0].as_u64() < data["bins"].as_u64()));
    }

    #[test]
    fn the_script_is_short() {
        assert!(SCRIPT.lines().count() <= 300, "{}", SCRIPT.lines().count());
    }
}
