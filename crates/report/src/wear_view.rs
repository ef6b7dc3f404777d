//! Sentences and tables about the wear that a recording caused.

use crate::rows::Rows;
use crate::text::{digits, grouped, number, size};
use flashscope_analysis::flash::{Health, LayerBytes, Life, Wear};
use flashscope_analysis::{FlashReport, OwnWear};

/// The total, and unknown parts, one sentence each.
pub fn sentences(report: &FlashReport) -> Vec<String> {
    let mut out = Vec::new();
    let Some(wear) = report.found.wear.known() else { return out };
    let of = |pages: u64, bytes: Option<u64>, what: &str| match bytes {
        Some(bytes) => format!("{} {what} ({})", grouped(pages), size(bytes)),
        None => format!("{} {what}", grouped(pages)),
    };
    let programmed = of(wear.programmed_pages, wear.programmed_bytes, "pages programmed");
    let erased = of(wear.erased_blocks, wear.erased_bytes, "blocks erased");
    out.push(match (wear.written_bytes, wear.program_amplification) {
        (Some(written), Some(times)) => {
            format!("Tasks wrote {}; {programmed}: {} bytes a byte; {erased}.", size(written), digits(times))
        }
        (Some(written), None) => format!("Tasks wrote {}; {programmed}; {erased}.", size(written)),
        (None, _) => format!("{programmed}; {erased}; what tasks wrote was not recorded (--events flash,cache)."),
    });
    for (pages, what) in [
        (wear.pages_of_no_file, "pages belong to no file: metadata, journal, garbage collection, raw writes"),
        (wear.pages_of_further_files, "pages belong to further files, too many to list"),
        (
            wear.threads_not_followed,
            "steps of threads that were too many to be followed: their pages count as belonging to no file",
        ),
    ] {
        if pages > 0 && wear.written_bytes.is_some() {
            out.push(format!("{} {what}.", grouped(pages)));
        }
    }
    if wear.erases_of_further_blocks > 0 {
        out.push(format!(
            "{} erases belong to further blocks, too many to count separately: they are not in the spread.",
            grouped(wear.erases_of_further_blocks)
        ));
    }
    for spread in wear.spread.iter().filter(|spread| spread.erases > 0) {
        let blocks = if spread.blocks > 0 { format!(" of {}", grouped(spread.blocks.into())) } else { String::new() };
        out.push(format!(
            "Chip {}: {}{blocks} blocks were erased, {} times in all; the most worn {} times, on average {}, standard deviation {}.",
            spread.chip,
            grouped(spread.erased_blocks),
            grouped(spread.erases),
            grouped(spread.most_of_a_block),
            number(spread.mean, 3),
            number(spread.standard_deviation, 3)
        ));
    }
    let layers: Vec<String> = report.found.amplification.iter().filter(|layer| layer.bytes > 0).map(layer).collect();
    if layers.len() > 1 {
        out.push(format!("Bytes, layer by layer: {}.", layers.join(", ")));
    }
    out.extend(report.life.iter().map(life));
    out.extend(report.system.wear.iter().map(OwnWear::sentence));
    out
}

/// Flash failures during the recording, in one line; `None` if there were none or no counter shows them.
pub fn failed(report: &FlashReport) -> Option<String> {
    let sum = |of: fn(&Health) -> u64| report.health.iter().map(of).fold(0, u64::saturating_add);
    let counted = [
        (sum(|health| health.ecc_failures), "reads that error correction could not restore"),
        (sum(|health| health.blocks_gone_bad), "blocks that became bad"),
        (sum(|health| health.corrected_bits), "bits restored by error correction"),
    ];
    let said: Vec<String> =
        counted.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{} {what}", grouped(*n))).collect();
    (!said.is_empty()).then(|| format!("Errors of the flash: {}.", said.join(", ")))
}

/// Errors of each NAND device from the kernel's counters, one row each.
pub fn errors(report: &FlashReport) -> Rows {
    let heads = &["device", "reads not restored", "blocks gone bad", "bits restored", "bad blocks in all"];
    Rows::new("tnnnn", heads, report.health.iter(), usize::MAX, |one| {
        let mut cells = vec![format!("mtd{}", one.mtd)];
        cells.extend([one.ecc_failures, one.blocks_gone_bad, one.corrected_bits, one.bad_blocks].map(grouped));
        cells
    })
}

/// The effect of each of these errors on the report's figures.
pub fn error_notes(report: &FlashReport) -> Vec<String> {
    report.health.iter().flat_map(Health::sentences).collect()
}

/// "flash 1.2 MiB (1.3 times)"
fn layer(of: &LayerBytes) -> String {
    let times = of.times.map_or_else(String::new, |times| format!(" ({} times)", digits(times)));
    format!("{} {}{times}", of.layer.name(), size(of.bytes))
}

fn life(life: &Life) -> String {
    let used = match life.used_cycles {
        0 => String::new(),
        used => format!(", {} of them used before", grouped(used)),
    };
    format!(
        "Chip {}: at this rate it lasts {} years with even wear, and {} years if all blocks wear like the most worn one; at {} erases \
         a block{used}.",
        life.chip,
        digits(life.even_years),
        digits(life.worst_block_years),
        grouped(life.endurance_cycles)
    )
}

pub fn tasks(wear: &Wear, most: usize) -> Rows {
    let heads = &["task", "written", "pages\nprogrammed", "blocks\nerased"];
    Rows::new("tnnn", heads, wear.by_task.iter(), most, |t| {
        vec![t.task.clone(), size(t.written_bytes), grouped(t.programmed_pages), grouped(t.erased_blocks)]
    })
}

pub fn files(wear: &Wear, most: usize) -> Rows {
    let heads = &["device", "inode", "file", "written", "pages\nprogrammed"];
    Rows::new("tntnn", heads, wear.by_file.iter(), most, |f| {
        let device = f.device.clone().unwrap_or_else(|| "not named".to_owned());
        vec![
            device,
            f.inode.to_string(),
            f.path.clone().unwrap_or_default(),
            size(f.written_bytes),
            grouped(f.programmed_pages),
        ]
    })
}
