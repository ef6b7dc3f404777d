//! Study files of all kinds, and the built-in ones.

use std::path::Path;

use crate::boot::BootStudy;
use crate::definition::{DefinitionError, Study, syntax};
use crate::layers::LayersStudy;
use crate::not_measured::NotMeasured;
use crate::replays::ReplaysStudy;
use crate::runs::RunsStudy;

/// The contents of a study file; its table decides the kind.
#[derive(Clone, Debug)]
pub enum StudyFile {
    /// `[matrix]`: settings that are compared with each other.
    Matrix(Box<Study>),
    /// `[layers]`: time of single calls by layer.
    Layers(LayersStudy),
    /// `[runs]`: whole workloads.
    Runs(Box<RunsStudy>),
    /// `[[not_measured]]`: statements for the reproduction that no study here can measure.
    NotMeasured(NotMeasured),
    /// `[replays]`: recorded applications, alone and together.
    Replays(Box<ReplaysStudy>),
    /// `[boot]`: flash operations while a root file system boots.
    Boot(Box<BootStudy>),
}

macro_rules! shipped {
    ($($name:literal),* $(,)?) => {
        &[$((
            concat!("studies/", $name, ".toml"),
            include_str!(concat!("../../../studies/", $name, ".toml")),
        )),*]
    };
}

/// Built-in studies: their paths in the source tree, and their texts, sorted by path.
pub const SHIPPED: &[(&str, &str)] = shipped!(
    "applications", "boot", "layers", "not-measured", "postmark-partial-reads", "postmark", "readahead-interarrival",
    "readahead-reads", "readahead-request-size", "readahead-today", "sqlite", "tracer-cost",
);

impl StudyFile {
    pub fn read(path: &Path) -> Result<StudyFile, DefinitionError> {
        let text = flashscope_targets::read_text(path, flashscope_targets::DEFINITION_BYTES)
            .map_err(|source| DefinitionError::Read { path: path.to_owned(), source })?;
        StudyFile::parse(&path.display().to_string(), &text)
    }

    /// Parses a text; `name` is its name in errors.
    pub fn parse(name: &str, text: &str) -> Result<StudyFile, DefinitionError> {
        let table: toml::Table = toml::from_str(text).map_err(|error| syntax(name, text, &error))?;
        let is = |kind: &str| table.contains_key(kind);
        let file = match () {
            () if is("layers") => StudyFile::Layers(LayersStudy::parse(name, text)?),
            () if is("runs") => StudyFile::Runs(Box::new(RunsStudy::parse(name, text)?)),
            () if is("replays") => StudyFile::Replays(Box::new(ReplaysStudy::parse(name, text)?)),
            () if is("boot") => StudyFile::Boot(Box::new(BootStudy::parse(name, text)?)),
            () if is("not_measured") => StudyFile::NotMeasured(NotMeasured::parse(name, text)?),
            () => StudyFile::Matrix(Box::new(Study::parse(name, text)?)),
        };
        if is_plain(file.name()) {
            Ok(file)
        } else {
            let message = format!(
                "name = {:?}: it becomes the name of a directory; use letters, digits, `-`, `_` and `.`, 64 at most, a letter or digit first",
                file.name()
            );
            Err(DefinitionError::Meaning { name: name.to_owned(), message })
        }
    }

    pub fn name(&self) -> &str {
        match self {
            StudyFile::Matrix(study) => &study.definition.name,
            StudyFile::Layers(study) => &study.definition.name,
            StudyFile::Runs(study) => &study.definition.name,
            StudyFile::NotMeasured(file) => &file.name,
            StudyFile::Replays(study) => &study.definition.name,
            StudyFile::Boot(study) => &study.definition.name,
        }
    }
}

/// Whether a name is a plain file name, because results go to `out/NAME`.
fn is_plain(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    name.len() <= 64 && name.starts_with(|c: char| c.is_ascii_alphanumeric()) && name.chars().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_that_of_a_directory_below_out() {
        for (path, text) in SHIPPED {
            let plain = StudyFile::parse(path, text).unwrap().name().to_owned();
            for name in ["../escape", "/tmp/escape", "..", ".", "", "a/b", "-o", "a b", "\\u001b[31m", &"a".repeat(65)]
            {
                let text = text.replacen(&format!("name = \"{plain}\""), &format!("name = \"{name}\""), 1);
                let error = StudyFile::parse(path, &text).map(|_| ()).unwrap_err().to_string();
                assert!(error.contains("the name of a directory"), "{path}: {name:?}: {error}");
            }
        }
    }

    #[test]
    fn every_study_of_the_source_tree_is_built_in() {
        let mut files: Vec<String> = std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../studies"))
            .unwrap()
            .map(|entry| format!("studies/{}", entry.unwrap().file_name().into_string().unwrap()))
            .filter(|name| name.ends_with(".toml"))
            .collect();
        files.sort();
        let shipped: Vec<&str> = SHIPPED.iter().map(|(name, _)| *name).collect();
        assert_eq!(shipped, files);
        for (name, text) in SHIPPED {
            StudyFile::parse(name, text).unwrap();
        }
    }
}
