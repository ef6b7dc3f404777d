//! Writes the rows of any table with typed columns as a Parquet file, with at most one row group in memory.

use super::parquet::{Optional, into_io};
use super::table::{Cell, Column, ColumnType, TableWriter, TableWritten};
use parquet::basic::Compression;
use parquet::column::writer::ColumnWriter;
use parquet::data_type::ByteArray;
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use std::io::{self, Write};
use std::sync::Arc;

/// A row group is written at this number of rows.
const ROWS: usize = 64 << 10;

enum Values {
    Integers(Optional<i64>),
    Texts(Optional<ByteArray>),
    Flags(Optional<bool>),
}

/// A table as a Parquet file.
pub struct ParquetTable<W: Write + Send> {
    file: SerializedFileWriter<W>,
    columns: &'static [Column],
    values: Vec<Values>,
    rows: usize,
    written: TableWritten,
    failed: Option<ParquetError>,
}

/// The columns in Parquet's own schema language.
fn message(columns: &[Column]) -> String {
    let mut message = "message flashscope {".to_owned();
    for column in columns {
        let (of, annotation) = match column.of {
            ColumnType::Number | ColumnType::Signed => ("int64", ""),
            ColumnType::Text => ("binary", " (STRING)"),
            ColumnType::Flag => ("boolean", ""),
        };
        let must = if column.required { "required" } else { "optional" };
        message += &format!(" {must} {of} {}{annotation};", column.name);
    }
    message + " }"
}

impl<W: Write + Send> ParquetTable<W> {
    /// # Errors
    /// Writing to the output failed.
    pub fn new(columns: &'static [Column], out: W) -> io::Result<Self> {
        let schema = parse_message_type(&message(columns)).map_err(into_io)?;
        let properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            .set_created_by(concat!("flashscope ", env!("CARGO_PKG_VERSION")).to_string())
            // The footer stays in memory until the end, so it must not grow with the pages.
            .set_offset_index_disabled(true)
            .set_statistics_enabled(EnabledStatistics::Chunk)
            .build();
        let file = SerializedFileWriter::new(out, Arc::new(schema), Arc::new(properties)).map_err(into_io)?;
        let values = columns.iter().map(|column| match column.of {
            ColumnType::Number | ColumnType::Signed => Values::Integers(Optional::default()),
            ColumnType::Text => Values::Texts(Optional::default()),
            ColumnType::Flag => Values::Flags(Optional::default()),
        });
        let values = values.collect();
        Ok(ParquetTable { file, columns, values, rows: 0, written: TableWritten::default(), failed: None })
    }

    /// Writes the buffered rows as a row group.
    fn flush(&mut self) -> Result<(), ParquetError> {
        if self.rows == 0 {
            return Ok(());
        }
        let mut group = self.file.next_row_group()?;
        for (column, values) in self.columns.iter().zip(&mut self.values) {
            let mismatch = || ParquetError::General(format!("column {}: of another type than its values", column.name));
            let mut writer = group.next_column()?.ok_or_else(mismatch)?;
            match (writer.untyped(), values) {
                (ColumnWriter::Int64ColumnWriter(to), Values::Integers(from)) => {
                    to.write_batch(&from.values, levels(column, &from.levels), None)?;
                    from.clear();
                }
                (ColumnWriter::ByteArrayColumnWriter(to), Values::Texts(from)) => {
                    to.write_batch(&from.values, levels(column, &from.levels), None)?;
                    from.clear();
                }
                (ColumnWriter::BoolColumnWriter(to), Values::Flags(from)) => {
                    to.write_batch(&from.values, levels(column, &from.levels), None)?;
                    from.clear();
                }
                _ => return Err(mismatch()),
            }
            writer.close()?;
        }
        group.close()?;
        self.rows = 0;
        Ok(())
    }
}

fn levels<'a>(column: &Column, levels: &'a [i16]) -> Option<&'a [i16]> {
    (!column.required).then_some(levels)
}

impl<W: Write + Send> TableWriter for ParquetTable<W> {
    fn row(&mut self, cells: &[Cell<'_>]) {
        if self.failed.is_some() {
            return;
        }
        for (values, cell) in self.values.iter_mut().zip(cells) {
            match (values, *cell) {
                (Values::Integers(to), Cell::Number(value)) => {
                    let signed = i64::try_from(value);
                    self.written.clamped += u64::from(signed.is_err());
                    to.push(Some(signed.unwrap_or(i64::MAX)));
                }
                (Values::Integers(to), Cell::Signed(value)) => to.push(Some(value)),
                (Values::Texts(to), Cell::Text(text)) => to.push(Some(ByteArray::from(text))),
                (Values::Flags(to), Cell::Flag(value)) => to.push(Some(value)),
                (Values::Integers(to), _) => to.push(None),
                (Values::Texts(to), _) => to.push(None),
                (Values::Flags(to), _) => to.push(None),
            }
        }
        self.rows += 1;
        self.written.rows += 1;
        if self.rows >= ROWS {
            self.failed = self.flush().err();
        }
    }

    fn finish(mut self: Box<Self>, notes: &[(&str, String)]) -> io::Result<TableWritten> {
        if let Some(error) = self.failed {
            return Err(into_io(error));
        }
        self.flush().map_err(into_io)?;
        for (key, value) in notes {
            self.file.append_key_value_metadata(KeyValue::new((*key).to_owned(), value.clone()));
        }
        self.file.close().map_err(into_io)?;
        Ok(self.written)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::Field;

    #[test]
    fn rows_come_back_with_what_is_unknown_as_null() {
        const COLUMNS: &[Column] = &[
            Column::required("a", ColumnType::Number),
            Column::optional("b", ColumnType::Text),
            Column::optional("c", ColumnType::Flag),
        ];
        let path = std::env::temp_dir().join(format!("flashscope-table-{}.parquet", std::process::id()));
        let mut table = Box::new(ParquetTable::new(COLUMNS, std::fs::File::create(&path).unwrap()).unwrap());
        for row in 0..ROWS as u64 + 5 {
            let text = row.to_string();
            let text = if row % 3 == 0 { Cell::Unknown } else { Cell::Text(&text) };
            table.row(&[Cell::Number(row), text, Cell::Flag(row % 2 == 0)]);
        }
        table.row(&[Cell::Number(u64::MAX), Cell::Unknown, Cell::Unknown]);
        let written = table.finish(&[("flashscope.schema", "1".to_owned())]).unwrap();
        assert_eq!(written, TableWritten { rows: ROWS as u64 + 6, clamped: 1 });
        let reader = SerializedFileReader::new(std::fs::File::open(&path).unwrap()).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(reader.num_row_groups(), 2);
        let mut count = 0;
        for (number, row) in (0..ROWS as i64 + 5).zip(reader.get_row_iter(None).unwrap()) {
            let row = row.unwrap();
            let cells: Vec<Field> = row.get_column_iter().map(|(_, field)| field.clone()).collect();
            let text = if number % 3 == 0 { Field::Null } else { Field::Str(number.to_string()) };
            assert_eq!(cells, [Field::Long(number), text, Field::Bool(number % 2 == 0)]);
            count += 1;
        }
        assert_eq!(count, ROWS as i64 + 5);
    }
}
