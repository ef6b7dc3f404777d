//! The page around the sections, with its size limit.

use super::explore::SCRIPT;
use crate::svg::STYLE;
use crate::text::escape;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest as _, Sha256};
use std::fmt::Write;

/// A page stays below 2 MB. A section that does not fit is left out and listed.
const MAX_BYTES: usize = 2_000_000;
/// Bytes reserved for the list of left-out sections, the foot and the script.
const RESERVE: usize = 80_000;
/// Largest number of titles in that list.
const MAX_LISTED: usize = 50;

pub struct Page {
    out: String,
    /// Position for the contents, which are inserted when all sections are known.
    contents_at: usize,
    /// Anchor and title of each entry, and whether the page has the section.
    contents: Vec<(String, String, bool)>,
    /// A heading that is written before the first part of its section.
    heading: Option<(String, String)>,
    /// Bytes reserved for parts that are added later.
    reserved: usize,
    left_out: Vec<String>,
}

pub struct Header<'a> {
    pub title: &'a str,
    pub question: &'a str,
    pub clock: &'a str,
    /// Trusted anchors with their titles; only sections with a part are listed.
    pub contents: &'a [(&'a str, &'a str)],
}

impl Page {
    pub fn new(header: &Header<'_>) -> Self {
        let mut out = format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; \
             script-src 'sha256-{script}'\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <title>{title} – flashscope</title>\n<style>\n{STYLE}{page}</style>\n</head>\n<body>\n<header>\n<h1>{title}</h1>\n",
            title = escape(header.title),
            page = include_str!("page.css"),
            script = STANDARD.encode(Sha256::digest(SCRIPT)),
        );
        for (class, text) in [("question", header.question), ("clock", header.clock)] {
            if !text.is_empty() {
                _ = writeln!(out, "<p class=\"{class}\">{}</p>", escape(text));
            }
        }
        let contents_at = out.len();
        out.push_str("</header>\n<main>\n<p class=\"note paper\">On paper are the first 6 rows of each table, and not all tables: open the page for the others.</p>\n");
        let contents =
            header.contents.iter().map(|(id, words)| ((*id).to_owned(), (*words).to_owned(), false)).collect();
        Self { out, contents_at, contents, heading: None, reserved: RESERVE, left_out: Vec::new() }
    }

    /// Sets the heading of the parts that follow; it is written only if a part is added.
    pub fn heading(&mut self, id: &str, words: &str) {
        self.heading = Some((id.to_owned(), words.to_owned()));
    }

    /// Reserves space for a later part, until [`Page::release`].
    pub fn reserve(&mut self, bytes: usize) {
        self.reserved += bytes;
    }

    pub fn release(&mut self, bytes: usize) {
        self.reserved -= bytes;
    }

    /// Adds a part with its own heading.
    pub fn section(&mut self, name: &str, markup: &str) {
        self.heading = None;
        self.add(name, markup);
    }

    /// Adds trusted markup if it fits; otherwise `name` (untrusted) is listed as left out.
    pub fn add(&mut self, name: &str, markup: &str) {
        if markup.is_empty() {
            return;
        }
        if let Some((id, words)) = self.heading.take() {
            let before = self.out.len();
            _ = writeln!(self.out, "<h2 id=\"{id}\">{words}</h2>");
            // Headings use the reserve of the foot, so they do not reduce the space reserved for a part.
            self.reserved = self.reserved.saturating_sub(self.out.len() - before);
            self.contents.iter_mut().filter(|one| one.0 == id).for_each(|one| one.2 = true);
        }
        if self.out.len() + markup.len() + self.reserved <= MAX_BYTES {
            self.out.push_str(markup);
        } else {
            self.left_out.push(name.to_owned());
        }
    }

    pub fn finish(mut self, foot: &str) -> String {
        if !self.left_out.is_empty() {
            self.out.push_str("<h2 id=\"left-out\">Left out of this page</h2>\n<p>This page stays under 2 MB. The JSON beside it is complete; left out here:</p>\n<ul>\n");
            for name in self.left_out.iter().take(MAX_LISTED) {
                let name: String = name.chars().take(160).collect();
                _ = writeln!(self.out, "<li>{}</li>", escape(&name));
            }
            if let Some(more) = self.left_out.len().checked_sub(MAX_LISTED).filter(|&n| n > 0) {
                _ = writeln!(self.out, "<li>and {more} more</li>");
            }
            self.out.push_str("</ul>\n");
        }
        let mut contents = "<nav aria-label=\"Contents\">".to_owned();
        for (id, words, _) in self.contents.iter().filter(|one| one.2) {
            _ = write!(contents, "<a href=\"#{id}\">{words}</a>");
        }
        self.out.insert_str(self.contents_at, &(contents + "</nav>\n"));
        _ = write!(
            self.out,
            "</main>\n<footer>\n<p>{}</p>\n</footer>\n<script>{SCRIPT}</script>\n</body>\n</html>\n",
            escape(foot)
        );
        self.out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_never_reaches_2_mb_and_says_what_it_leaves_out() {
        let mut page = Page::new(&Header { title: "t", question: "", clock: "", contents: &[] });
        for i in 0..10_000 {
            page.add(&format!("<section> {i}"), &"x".repeat(7_000));
        }
        let html = page.finish("foot");
        assert!(html.len() < MAX_BYTES, "{}", html.len());
        assert!(html.len() > MAX_BYTES - 2 * RESERVE, "{}", html.len());
        assert!(html.contains("&lt;section&gt;") && !html.contains("<section>"));
        assert!(html.ends_with("</html>\n"));
    }
}
