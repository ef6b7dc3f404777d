//! The search for a read-ahead policy, on a terminal.

use flashscope_analysis::readahead::{Best, Choice, Found, Owner};
use flashscope_readahead::{FileId, Initial, PAGE_BYTES};

use super::Style;
use super::table::{Table, paragraph};
use crate::text::{duration, grouped, number, visible};

/// Owners that are listed.
const MAX_OWNERS: usize = 8;

/// The whole text; ends in a newline. `name` is what a file is called.
pub fn policies(found: &Found, name: &dyn Fn(FileId) -> String, style: &Style) -> String {
    let style = *style;
    let width = style.width();
    let energy = found.best.iter().any(|best| best.spent.energy_uj.is_some());
    let mut out = paragraph(
        &format!(
            "{} policies under the rules of Linux {}; no read or fault may take longer than {}. Least {} counts.",
            found.tried,
            found.model,
            duration(found.latency_ns as u64),
            if energy { "energy (model)" } else { "time" },
        ),
        width,
        0,
        0,
    );
    out += &style.heading("The best of each kind");
    let mut table = Table::new("tnnnnnt");
    table.head(["among", "pages", "unused", "time in reads", "longest", "energy", "of stock"]);
    let stock = found.best.iter().find(|best| best.among == "stock");
    for best in &found.best {
        let spent = &best.spent;
        let saved = stock.filter(|_| best.among != "stock").map(|stock| against(best, stock)).unwrap_or_default();
        let bound = match (best.in_bound, saved.is_empty()) {
            (true, _) => "",
            (false, true) => "too long",
            (false, false) => ", too long",
        };
        table.row([
            best.among.to_owned(),
            grouped(spent.pages),
            grouped(spent.pages_unused),
            duration(spent.time_ns as u64),
            duration(spent.longest_ns as u64),
            microjoules(spent.energy_uj),
            format!("{saved}{bound}"),
        ]);
    }
    if let Some(all) = &found.clairvoyant {
        table.row([
            "perfect foresight".to_owned(),
            grouped(all.pages),
            "0".to_owned(),
            duration(all.time_ns as u64),
            format!("{} or more", duration(all.longest_ns as u64)),
            microjoules(all.energy_uj),
            "a bound".to_owned(),
        ]);
    }
    out += &table.render(width);
    for best in &found.best {
        out += &paragraph(&format!("{}: {}", best.among, said(&best.choices, name)), width, 0, 2);
    }
    if found.clairvoyant.is_none() {
        out += &paragraph(
            "Perfect foresight is not given: the trace has more accesses than are kept for it.",
            width,
            0,
            2,
        );
    }
    for note in &found.notes {
        out += &paragraph(&visible(note), width, 0, 2);
    }
    out
}

fn microjoules(uj: Option<f64>) -> String {
    uj.map_or("–".to_owned(), |uj| format!("{} mJ", number(uj / 1000.0, 3)))
}

fn against(best: &Best, stock: &Best) -> String {
    let cost = |best: &Best| best.spent.energy_uj.unwrap_or(best.spent.time_ns);
    match cost(stock) {
        0.0 => String::new(),
        stock => format!("{} %", number(cost(best) / stock * 100.0, 1)),
    }
}

fn said(choices: &[Choice], name: &dyn Fn(FileId) -> String) -> String {
    let common = choices.first().map(|choice| choice.policy);
    let others: Vec<&Choice> =
        choices.iter().filter(|choice| choice.owner != Owner::All && Some(choice.policy) != common).collect();
    let mut parts: Vec<String> = Vec::new();
    for choice in others.iter().take(MAX_OWNERS) {
        let owner = match choice.owner {
            Owner::All => continue,
            Owner::File(file) => visible(&name(file)).into_owned(),
            Owner::Task(tid) => format!("task {tid}"),
        };
        parts.push(format!("{owner} {}", policy(choice)));
    }
    if others.len() > MAX_OWNERS {
        parts.push(format!("{} more (--json has all)", others.len() - MAX_OWNERS));
    }
    let rest = choices.iter().find(|choice| choice.owner == Owner::All).map(policy).unwrap_or_default();
    match parts.is_empty() {
        true => format!("{rest} for all"),
        false => format!("{}; the rest {rest}", parts.join(", ")),
    }
}

fn policy(choice: &Choice) -> String {
    let policy = choice.policy;
    let mut text = format!("{} KiB", policy.window_pages * (PAGE_BYTES / 1024));
    match policy.initial {
        Initial::Kernel => {}
        Initial::Twice => text += ", first twice the request",
        Initial::Whole => text += ", whole at once",
    }
    if !policy.context {
        text += ", no context";
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use flashscope_analysis::readahead::{Clairvoyant, SEARCH_SCHEMA, Spent};
    use flashscope_readahead::Policy;

    #[test]
    fn each_kind_has_a_row_and_says_its_choice() {
        let spent = |time_ns| Spent { pages: 1200, pages_unused: 200, time_ns, longest_ns: 2e6, energy_uj: None };
        let file = FileId { device: Some(0x1f00000), inode: 7 };
        let best = |among, time_ns, in_bound, choices| Best { among, spent: spent(time_ns), in_bound, choices };
        let all = |pages| Choice { owner: Owner::All, policy: Policy::of_kernel(pages) };
        let own = Policy { window_pages: 8, initial: Initial::Whole, context: false };
        let mut found = Found {
            schema: SEARCH_SCHEMA,
            model: "6.1",
            latency_ns: 2e6,
            tried: 43,
            best: vec![
                best("stock", 4e9, false, vec![all(32)]),
                best(
                    "a policy for each file",
                    3e9,
                    true,
                    vec![all(0), Choice { owner: Owner::File(file), policy: own }],
                ),
            ],
            clairvoyant: Some(Clairvoyant { pages: 1000, time_ns: 2e9, longest_ns: 1e6, energy_uj: None }),
            notes: vec!["a \x1b[1mnote".to_owned()],
        };
        let name = |_: FileId| "a\x1b[2Jfile".to_owned();
        let text = policies(&found, &name, &Style::default());
        for part in [
            "43 policies under the rules of Linux 6.1; no read or fault may take longer than 2.00 ms. Least time",
            "too long",
            "75 %",
            "perfect foresight",
            "stock: 128 KiB for all",
            "32 KiB, whole at once, no context; the rest 0 KiB",
        ] {
            assert!(text.contains(part), "{part:?} in {text}");
        }
        assert!(!text.contains('\x1b'), "{text}");
        found.clairvoyant = None;
        assert!(policies(&found, &name, &Style::default()).contains("Perfect foresight is not given"));
    }
}
