//! `schema`: prints the JSON schema of a command's `--json` output.
//!
//! Generated from the types that write the JSON. Each object is closed: a member without an entry in the schema is an error.

use flashscope_analysis::block::{BLOCK_REPORT_SCHEMA, BlockReport};
use flashscope_analysis::comparison::COMPARISON_SCHEMA;
use flashscope_analysis::layers::{LAYERS_REPORT_SCHEMA, LayersReport};
use flashscope_analysis::{
    CALL_PATH_SCHEMA, CallPath, FLASH_REPORT_SCHEMA, FlashReport, SPLIT_REPORT_SCHEMA, SplitReport,
};
use flashscope_predict::{PREDICTION_SCHEMA, Prediction};
use flashscope_report::json::NAMES_BESIDE;
use flashscope_report::top::{TOP_SCHEMA, TopSnapshot};
use flashscope_study::boot::BootResult;
use flashscope_study::layers::LayersResult;
use flashscope_study::replays::ReplaysResult;
use flashscope_study::runs::RunsResult;
use flashscope_study::{SCHEMA as STUDY_SCHEMA, StudyResult};
use flashscope_trace::facts::complete;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};
use serde_json::{Map, Value, json};

use crate::args::SchemaArgs;
use crate::failure::Failure;
use crate::{advise, bench, board, diff};

pub mod agent_results;

/// The document has device names beside device numbers.
const NAMED: bool = true;
const PLAIN: bool = false;

/// A kind of document: the command that prints it, and its schema.
struct Document {
    name: &'static str,
    printed_by: &'static str,
    /// The value of its member `schema`, if it has one.
    version: Option<u32>,
    schema: fn() -> Schema,
    named: bool,
}

/// The schema of a type that we write.
fn written<T: JsonSchema>() -> Schema {
    SchemaSettings::draft2020_12().for_serialize().into_generator().into_root_schema_for::<T>()
}

/// The schema of the agent's output: a member that can be null may be missing.
fn read<T: JsonSchema>() -> Schema {
    SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<T>()
}

#[rustfmt::skip]
const DOCUMENTS: &[Document] = &[
    Document { name: "report-block", printed_by: "report --json, of block I/O", version: Some(BLOCK_REPORT_SCHEMA), schema: written::<BlockReport>, named: NAMED },
    Document { name: "report-flash", printed_by: "report --json, of raw flash", version: Some(FLASH_REPORT_SCHEMA), schema: written::<FlashReport>, named: NAMED },
    Document { name: "report-layers", printed_by: "report --by layer --json", version: Some(LAYERS_REPORT_SCHEMA), schema: written::<LayersReport>, named: PLAIN },
    Document { name: "report-by", printed_by: "report --by file|device|call --json", version: Some(SPLIT_REPORT_SCHEMA), schema: written::<SplitReport>, named: NAMED },
    Document { name: "report-call", printed_by: "report --call NUMBER --json", version: Some(CALL_PATH_SCHEMA), schema: written::<CallPath>, named: PLAIN },
    Document { name: "diff", printed_by: "diff --json", version: Some(COMPARISON_SCHEMA), schema: written::<diff::Printed>, named: PLAIN },
    Document { name: "advise", printed_by: "advise --json", version: Some(advise::SCHEMA), schema: written::<advise::Printed>, named: PLAIN },
    Document { name: "predict", printed_by: "predict --json", version: Some(PREDICTION_SCHEMA), schema: written::<Prediction>, named: PLAIN },
    Document { name: "top", printed_by: "top --json, each line", version: Some(TOP_SCHEMA), schema: written::<TopSnapshot>, named: PLAIN },
    Document { name: "doctor", printed_by: "doctor --json", version: None, schema: read::<complete::Facts>, named: PLAIN },
    Document { name: "board-list", printed_by: "board list --json", version: None, schema: written::<Vec<board::Listed>>, named: PLAIN },
    Document { name: "bench-read", printed_by: "bench read --json", version: None, schema: written::<bench::BenchResult>, named: PLAIN },
    Document { name: "bench-sqlite", printed_by: "bench sqlite --json", version: None, schema: read::<bench::agent::Done<agent_results::Sqlite>>, named: PLAIN },
    Document { name: "bench-postmark", printed_by: "bench postmark --json", version: None, schema: read::<bench::agent::Done<agent_results::Postmark>>, named: PLAIN },
    Document { name: "bench-replay", printed_by: "bench replay --json", version: None, schema: read::<bench::agent::Done<agent_results::Replay>>, named: PLAIN },
    Document { name: "study", printed_by: "study --json, of cells; results.json", version: Some(STUDY_SCHEMA), schema: written::<StudyResult>, named: PLAIN },
    Document { name: "study-layers", printed_by: "study --json, of layers; results.json", version: Some(flashscope_study::layers::LAYERS_SCHEMA), schema: written::<LayersResult>, named: PLAIN },
    Document { name: "study-runs", printed_by: "study --json, of workloads; results.json", version: Some(flashscope_study::runs::RUNS_SCHEMA), schema: written::<RunsResult>, named: PLAIN },
    Document { name: "study-replays", printed_by: "study --json, of applications; results.json", version: Some(flashscope_study::replays::REPLAYS_SCHEMA), schema: written::<ReplaysResult>, named: PLAIN },
    Document { name: "study-boot", printed_by: "study --json, of booting; results.json", version: Some(flashscope_study::boot::BOOT_SCHEMA), schema: written::<BootResult>, named: PLAIN },
];

pub fn run(args: &SchemaArgs) -> Result<(), Failure> {
    let Some(name) = &args.name else {
        outln!("{:<16} {:<8} printed by", "NAME", "version");
        for one in DOCUMENTS {
            let version = one.version.map_or("-".to_owned(), |version| version.to_string());
            outln!("{:<16} {version:<8} {}", one.name, one.printed_by);
        }
        return Ok(());
    };
    let Some(document) = DOCUMENTS.iter().find(|one| one.name == name) else {
        let names: Vec<&str> = DOCUMENTS.iter().map(|one| one.name).collect();
        return Err(Failure::usage(format!("{name}: no such schema; the schemas are {}", names.join(", "))));
    };
    out!("{}", flashscope_report::json::any(&of(document)));
    Ok(())
}

fn of(document: &Document) -> Value {
    let mut schema = (document.schema)().to_value();
    if document.named {
        beside(&mut schema);
    }
    close(&mut schema, true);
    schema["title"] = json!(format!("flashscope {}", document.printed_by));
    if let Some(version) = document.version {
        schema["properties"]["schema"]["const"] = json!(version);
    }
    schema
}

/// Adds the names beside device numbers.
fn beside(schema: &mut Value) {
    if let Some(Value::Object(members)) = schema.get_mut("properties") {
        for (number, name) in NAMES_BESIDE {
            if members.contains_key(number) && !members.contains_key(name) {
                members.insert(name.to_owned(), json!({"type": "string", "description": "Name of the device."}));
            }
        }
    }
    below(schema, &mut beside);
}

/// Closes an object. An object that is composed of several is closed as a whole, not in its parts.
fn close(schema: &mut Value, closed: bool) {
    let Value::Object(object) = schema else { return below(schema, &mut |one| close(one, true)) };
    let parts = ["allOf", "anyOf", "oneOf"].into_iter().any(|kind| object.contains_key(kind));
    let together = parts && object.contains_key("properties");
    if closed && together {
        object.insert("unevaluatedProperties".to_owned(), Value::Bool(false));
    } else if closed && object.contains_key("properties") && !object.contains_key("additionalProperties") {
        object.insert("additionalProperties".to_owned(), Value::Bool(false));
    }
    close_parts(object, closed && !together);
}

fn close_parts(object: &mut Map<String, Value>, closed: bool) {
    for (key, value) in object {
        match (key.as_str(), value) {
            ("allOf" | "anyOf" | "oneOf", Value::Array(parts)) => parts.iter_mut().for_each(|one| close(one, closed)),
            ("properties" | "$defs", Value::Object(members)) => members.values_mut().for_each(|one| close(one, true)),
            ("items" | "additionalProperties", one) => close(one, true),
            ("prefixItems", Value::Array(all)) => all.iter_mut().for_each(|one| close(one, true)),
            _ => {}
        }
    }
}

/// Calls `each` for every schema inside a schema.
fn below(schema: &mut Value, each: &mut dyn FnMut(&mut Value)) {
    match schema {
        Value::Array(all) => all.iter_mut().for_each(each),
        Value::Object(object) => object.values_mut().for_each(each),
        _ => {}
    }
}
