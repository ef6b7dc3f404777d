//! Writes a study as CSV (RFC 4180, but lines end in LF): one row per cell, units in the column names.

use crate::text::visible;
use flashscope_analysis::energy::Basis;
use flashscope_study::StudyResult;

const STUDY_COLUMNS: &str = "study,group,board,kernel_release,filesystem,contents,file_size_bytes,default_readahead_kib,\
pattern,count,request_bytes,readahead,readahead_kib,interarrival_us,seed,total_ns,latency_n,latency_min_ns,latency_mean_ns,\
latency_p50_ns,latency_p90_ns,latency_p99_ns,latency_max_ns,read_bytes,crc32,flash_reads,flash_reads_open,open_ns,energy_basis,energy_uj,losses";

/// One row per cell. `losses` is the sum over the cell's whole group. `raw`: text that a spreadsheet would take for a formula is written
/// unchanged.
pub fn study(result: &StudyResult, raw: bool) -> String {
    let field = |text: &str| field(text, raw);
    let mut out = format!("{STUDY_COLUMNS}\n");
    for group in &result.groups {
        let losses: u64 = group.losses.iter().fold(0, |sum, loss| sum.saturating_add(loss.count));
        for cell in &group.cells {
            let l = &cell.latency;
            row(
                &mut out,
                &[
                    field(&result.header.study),
                    field(&group.id),
                    field(&group.inputs.board),
                    field(&group.inputs.kernel_release),
                    field(&group.filesystem),
                    field(&group.contents),
                    group.file_size_bytes.to_string(),
                    group.default.kib.to_string(),
                    field(&cell.pattern),
                    cell.count.to_string(),
                    cell.request_bytes.to_string(),
                    field(&cell.readahead),
                    cell.readahead_kib.to_string(),
                    cell.interarrival_us.to_string(),
                    cell.seed.to_string(),
                    cell.total_ns.to_string(),
                    l.n.to_string(),
                    l.min.to_string(),
                    l.mean.to_string(),
                    l.p50.to_string(),
                    l.p90.to_string(),
                    l.p99.to_string(),
                    l.max.to_string(),
                    cell.bytes_read.to_string(),
                    format!("{:08x}", cell.crc32),
                    cell.flash_reads.to_string(),
                    cell.flash_reads_open.to_string(),
                    cell.open_ns.to_string(),
                    cell.energy.map_or(String::new(), |energy| basis(energy.basis).to_owned()),
                    cell.energy.map_or(String::new(), |energy| format!("{:.3}", energy.uj)),
                    losses.to_string(),
                ],
            );
        }
    }
    out
}

fn basis(basis: Basis) -> &'static str {
    match basis {
        Basis::Model => "model",
        Basis::Measured => "measured",
    }
}

fn row(out: &mut String, fields: &[String]) {
    out.push_str(&fields.join(","));
    out.push('\n');
}

/// A text cell: terminal control characters are escaped, and formulas disarmed unless `raw`.
fn field(text: &str, raw: bool) -> String {
    flashscope_output::cell(&visible(text), raw).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic;

    #[test]
    fn one_row_per_cell_with_as_many_fields_as_columns() {
        let result = synthetic::study();
        let csv = study(&result, false);
        let mut lines = csv.lines();
        let columns = lines.next().unwrap().split(',').count();
        let cells: usize = result.groups.iter().map(|g| g.cells.len()).sum();
        assert_eq!(lines.clone().count(), cells);
        assert!(lines.all(|line| line.split(',').count() == columns));
        assert!(csv.contains(
            "\nreadahead-reads,jffs2-printable-5M,armv7,6.1.0-50-armmp,jffs2,printable,5242880,0,sequential,8,4096,0,0,0,1,"
        ));
    }

    #[test]
    fn names_are_quoted_and_are_no_formulas() {
        assert_eq!(field("a,\"b\"", false), "\"a,\"\"b\"\"\"");
        assert_eq!(field("=cmd()", false), "\"'=cmd()\"");
        assert_eq!(field("=cmd()", true), "=cmd()");
        assert_eq!(field("-5", false), "-5");
        assert_eq!(field("a\nb\u{1b}", false), "a\\nb\\x1b");
    }
}
