//! Writes the rows of any table with typed columns as CSV, JSON lines or Parquet. The caller defines the rows.
//!
//! An unknown cell is empty (CSV) or null (JSON, Parquet), never 0.

use super::{csv_text, json_text, put};
use std::io::{self, Write};

/// The type of a column's cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnType {
    /// A number ≥ 0.
    Number,
    Signed,
    Text,
    Flag,
}

/// A column of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    pub name: &'static str,
    pub of: ColumnType,
    /// Every row has a value.
    pub required: bool,
}

impl Column {
    pub const fn required(name: &'static str, of: ColumnType) -> Column {
        Column { name, of, required: true }
    }

    pub const fn optional(name: &'static str, of: ColumnType) -> Column {
        Column { name, of, required: false }
    }
}

/// A value of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cell<'a> {
    Unknown,
    Number(u64),
    Signed(i64),
    Text(&'a str),
    Flag(bool),
}

impl From<Option<u64>> for Cell<'_> {
    fn from(value: Option<u64>) -> Self {
        value.map_or(Cell::Unknown, Cell::Number)
    }
}

impl<'a> From<Option<&'a str>> for Cell<'a> {
    fn from(value: Option<&'a str>) -> Self {
        value.map_or(Cell::Unknown, Cell::Text)
    }
}

/// Counts of a written table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableWritten {
    pub rows: u64,
    /// Numbers beyond 2⁶³ − 1: a Parquet table has 2⁶³ − 1 instead.
    pub clamped: u64,
}

/// Writes a table row by row.
pub trait TableWriter {
    /// Writes a row. `cells` has the same number and order as the table's columns. After an error nothing more is written.
    fn row(&mut self, cells: &[Cell<'_>]);
    /// Writes the remaining rows. `notes` are written in formats that have a place for them (Parquet's metadata).
    ///
    /// # Errors
    /// The first error of all rows.
    fn finish(self: Box<Self>, notes: &[(&str, String)]) -> io::Result<TableWritten>;
}

/// A table as lines of text.
pub struct TextTable<'a> {
    out: &'a mut dyn Write,
    columns: &'static [Column],
    /// `Some(raw)`: CSV, with text unchanged if `raw`. `None`: JSON lines.
    csv: Option<bool>,
    line: Vec<u8>,
    rows: u64,
    failed: Option<io::Error>,
}

impl<'a> TextTable<'a> {
    /// A CSV writer (RFC 4180, lines end with a line feed) with a heading; `raw` as in [`super::csv_as`].
    pub fn csv(columns: &'static [Column], raw: bool, out: &'a mut dyn Write) -> Self {
        let line = columns.iter().map(|column| column.name).collect::<Vec<_>>().join(",").into_bytes();
        let mut table = TextTable { out, columns, csv: Some(raw), line, rows: 0, failed: None };
        table.end_line();
        table
    }

    /// A writer of one JSON object per line, with the names of all columns.
    pub fn json_lines(columns: &'static [Column], out: &'a mut dyn Write) -> Self {
        TextTable { out, columns, csv: None, line: Vec::new(), rows: 0, failed: None }
    }

    fn end_line(&mut self) {
        self.line.push(b'\n');
        self.failed = self.out.write_all(&self.line).err();
        self.line.clear();
    }
}

impl TableWriter for TextTable<'_> {
    fn row(&mut self, cells: &[Cell<'_>]) {
        if self.failed.is_some() {
            return;
        }
        for (index, (column, cell)) in self.columns.iter().zip(cells).enumerate() {
            let line = &mut self.line;
            match self.csv {
                Some(_) if index > 0 => line.push(b','),
                Some(_) => {}
                None => {
                    line.push(if index == 0 { b'{' } else { b',' });
                    json_text(line, column.name);
                    line.push(b':');
                }
            }
            match (*cell, self.csv) {
                (Cell::Unknown, Some(_)) => {}
                (Cell::Unknown, None) => line.extend_from_slice(b"null"),
                (Cell::Number(value), _) => put(line, value),
                (Cell::Signed(value), _) => put(line, value),
                (Cell::Flag(value), _) => put(line, value),
                (Cell::Text(text), Some(raw)) => csv_text(line, raw, text),
                (Cell::Text(text), None) => json_text(line, text),
            }
        }
        if self.csv.is_none() {
            self.line.push(b'}');
        }
        self.rows += 1;
        self.end_line();
    }

    fn finish(self: Box<Self>, _notes: &[(&str, String)]) -> io::Result<TableWritten> {
        match self.failed {
            Some(error) => Err(error),
            None => self.out.flush().map(|()| TableWritten { rows: self.rows, clamped: 0 }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: &[Column] = &[
        Column::required("a", ColumnType::Number),
        Column::optional("b", ColumnType::Text),
        Column::optional("c", ColumnType::Signed),
        Column::optional("d", ColumnType::Flag),
    ];
    const ROWS: [[Cell<'static>; 4]; 2] = [
        [Cell::Number(0), Cell::Text("=1,\"x\""), Cell::Signed(-5), Cell::Flag(true)],
        [Cell::Number(u64::MAX), Cell::Unknown, Cell::Unknown, Cell::Unknown],
    ];

    fn written(table: impl FnOnce(&mut Vec<u8>) -> TableWritten) -> String {
        let mut out = Vec::new();
        assert_eq!(table(&mut out), TableWritten { rows: 2, clamped: 0 });
        String::from_utf8(out).unwrap()
    }

    fn rows(mut table: Box<dyn TableWriter + '_>) -> TableWritten {
        ROWS.iter().for_each(|row| table.row(row));
        table.finish(&[]).unwrap()
    }

    #[test]
    fn what_is_not_known_is_empty_or_null_and_never_zero() {
        let csv = written(|out| rows(Box::new(TextTable::csv(COLUMNS, false, out))));
        assert_eq!(csv, "a,b,c,d\n0,\"'=1,\"\"x\"\"\",-5,true\n18446744073709551615,,,\n");
        let json = written(|out| rows(Box::new(TextTable::json_lines(COLUMNS, out))));
        assert_eq!(
            json,
            "{\"a\":0,\"b\":\"=1,\\\"x\\\"\",\"c\":-5,\"d\":true}\n{\"a\":18446744073709551615,\"b\":null,\"c\":null,\"d\":null}\n"
        );
    }
}
