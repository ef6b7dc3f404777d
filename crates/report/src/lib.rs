//! Rendering only: a study's result or a trace's findings as terminal text, JSON, CSV, SVG figures or one HTML page.
//!
//! Every output is a function of its input alone: no clock, no paths, no environment. Names in the input are untrusted;
//! each renderer writes out what could act on a terminal, a page or a spreadsheet.

pub mod csv;
pub mod figures;
pub mod html;
pub mod json;
pub mod terminal;

mod svg;
mod text;
mod view;

#[cfg(test)]
mod synthetic;

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn dump() {
        let Ok(dir) = std::env::var("DUMP") else { return };
        let s = synthetic::study();
        let f = synthetic::flash();
        let style = terminal::Style::default();
        for (name, text) in [
            ("study.html", html::study(&s)),
            ("study.json", json::study(&s)),
            ("study.csv", csv::study(&s)),
            ("study.txt", terminal::study(&s, &style)),
            ("flash.html", html::flash(&f)),
            ("flash.json", json::flash(&f)),
            ("flash.csv", csv::flash(&f)),
            ("flash.txt", terminal::flash(&f, &style)),
        ] {
            std::fs::write(format!("{dir}/{name}"), text).unwrap();
        }
    }
}
