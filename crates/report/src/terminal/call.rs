//! One call on a terminal: its time by layer, and the owners that delayed it.

use super::table::paragraph;
use super::{Style, rows};
use crate::calls_view;
use crate::text::{duration, grouped, size, visible};
use flashscope_analysis::{CallPath, Evidence, NamesFound};

/// The whole text; ends in a newline. `begin_ns`: beginning of the trace.
pub fn call(path: &CallPath, names: &NamesFound, begin_ns: u64, style: &Style) -> String {
    let path = &crate::names::call_for_people(path, names);
    let width = style.width();
    let call = &path.call;
    let file = call.file.as_ref().map_or(String::new(), |file| format!(", file {file}"));
    let bytes = if call.bytes > 0 { format!(", {}", size(call.bytes)) } else { String::new() };
    let begins = duration(call.begin_ns.saturating_sub(begin_ns));
    let head = format!(
        "Call {}: {} by {}{file}{bytes}: {}, from +{begins}",
        call.number,
        call.call,
        call.task,
        duration(call.duration_ns)
    );
    let mut out = paragraph(&visible(&head), width, 0, 2);
    out += &style.heading("Held up by");
    match path.held_up_by.first() {
        Some(first) => {
            let line = format!(
                "{}: {} of it were in {} for {} while this call's bios waited in front of it.",
                first.owner,
                grouped(first.bios),
                first.device,
                duration(first.in_device_ns)
            );
            out += &paragraph(&visible(&line), width, 2, 4);
            out += &rows(&calls_view::holders(path), width);
        }
        None if path.bios.is_empty() => out += "  none: the call waited for no bio of its own\n",
        None => out += "  none: no other bio was in the device while the call's bios waited\n",
    }
    out += &style.heading("Layers");
    match &path.layers {
        Evidence::Known(layers) => {
            let unattributed = path.unattributed_ns.known().copied().unwrap_or(0);
            out += &rows(&calls_view::layers(layers, unattributed, call.duration_ns), width);
        }
        Evidence::Unknown(why) => {
            out += &paragraph(&visible(&format!("unknown: {}; {}", why.missing, why.next)), width, 2, 4);
        }
    }
    if !path.bios.is_empty() {
        out += &style.heading("Bios that it waited for");
        out += &rows(&calls_view::bios(path), width);
        if path.bios_not_listed > 0 {
            out += &format!("  and {} more\n", grouped(path.bios_not_listed));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use flashscope_analysis::TaskId;
    use flashscope_analysis::calls::SlowCall;
    use flashscope_analysis::{PathBio, call_path, path_bios};

    #[test]
    fn the_one_who_had_the_device_stands_first() {
        let call_of = SlowCall {
            number: 12,
            call: "read".into(),
            task: "player\u{1b} (7)".into(),
            tid: TaskId(7),
            begin_ns: 1_000,
            duration_ns: 900_000,
            file: None,
            path: None,
            bytes: 4096,
        };
        let bio = |tid, owner: &str, [queued_ns, issued, completed_ns]: [u64; 3]| PathBio {
            device: "8:0".into(),
            sector: 8,
            bytes: 4096,
            kind: "read".into(),
            flags: "R".into(),
            owner: owner.into(),
            owner_tid: tid,
            carrier_tid: 0,
            of_kernel: false,
            queued_ns,
            issued_ns: Some(issued),
            completed_ns,
        };
        let bios = vec![bio(7, "player (7)", [2_000, 500_000, 900_000]), bio(8, "backup (8)", [0, 1_000, 400_000])];
        let bios = path_bios(&call_of, bios);
        let path = call_path(call_of, Evidence::unknown("no boundaries", "record them"), bios);
        let text = call(&path, &NamesFound::default(), 0, &Style::default());
        assert!(text.contains("backup (8): 1 of it were in 8:0 for 398.0 µs"), "{text}");
        assert!(text.contains("unknown: no boundaries; record them") && !text.contains('\u{1b}'), "{text}");
    }
}
