//! `--parquet` and `--arrow`: the rows of every listing as columns, read by the readers of the formats.
#![cfg(feature = "arrow")]

mod common;

use std::fs::File;
use std::io::Cursor;

use arrow_array::cast::AsArray as _;
use arrow_array::types::{Int64Type, UInt64Type};
use arrow_array::{Array as _, RecordBatch, StringArray};
use arrow_ipc::reader::StreamReader;
use common::{check_closed_pipe, check_full_disk, command, run, run_on_terminal, Run, Sleeper};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serde_json::Value;
use taskdiag_testkit::temporary::{Directory, Killed};

fn arrow(run: &Run) -> Vec<RecordBatch> {
    let reader = StreamReader::try_new(Cursor::new(&run.stdout), None).expect("a stream of Arrow");
    reader.map(|batch| batch.expect("a batch")).collect()
}

fn parquet(run: &Run) -> Vec<RecordBatch> {
    let place = Directory::new("columns");
    let path = place.join("rows.parquet");
    std::fs::write(&path, &run.stdout).expect("a file");
    let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(path).expect("our file")).expect("Parquet");
    let batches = reader.build().expect("a reader");
    batches.map(|batch| batch.expect("a batch")).collect()
}

fn names(batch: &RecordBatch) -> Vec<String> {
    batch
        .schema()
        .fields()
        .iter()
        .map(|field| field.name().clone())
        .collect()
}

/// Check that every listing has both forms, with the columns of its CSV and the reasons.
#[test]
fn every_listing_has_columns() {
    let sleeper = Sleeper::new("columns");
    let pid = sleeper.pid();
    // For events.
    let mut command = std::process::Command::new("sh");
    let _starts = Killed(
        command
            .args(["-c", "while :; do sleep 0.01; done"])
            .spawn()
            .expect("sh"),
    );
    for args in [
        &["ps", "-p", &pid, "--names", "-o", "all"][..],
        &["ps", "-T", "-p", &pid],
        &["tree", &pid],
        &["mem", "-p", &pid],
        &["mem", "--by", "unit,user"],
        &["mem", "--total"],
        &["mem", "--system"],
        &["files", &pid, "-o", "all"],
        &["files", "--by", "path", "-p", &pid],
        &["sockets", "-o", "all"],
        &["sockets", "--by", "port,user"],
        &["maps", &pid],
        &["maps", &pid, "--sort", "-size_bytes", "--limit", "2"],
        &["normalize", &pid, "0x1000"],
        &["cache", "/etc/passwd"],
        &["cache", "--by", "program,user", "--of-process", &pid],
        &["cache", "--map", "/etc/passwd"],
        &["events", "--for", "0.3"],
        &["fields", "-o", "all"],
        &["doctor"],
    ] {
        let with = |form: &str| run(&[args, &[form]].concat());
        let csv = with("--csv");
        let lines: Vec<&[u8]> = csv.stdout.split(|&byte| byte == b'\n').collect();
        let header = format!("{},absent", String::from_utf8_lossy(lines[0]));
        assert!(header != ",absent", "{args:?}: {csv:?}");
        let (stream, file) = (arrow(&with("--arrow")), parquet(&with("--parquet")));
        for batch in stream.iter().chain(&file) {
            assert_eq!(names(batch).join(","), header, "{args:?}");
        }
        let is_empty = lines.len() == 2;
        assert!(is_empty || !stream.is_empty() && !file.is_empty(), "{args:?}");
    }
}

/// Check that all values are those of JSON, with the reasons for those that are missing.
#[test]
fn values_are_those_of_json() {
    let json = run(&["fields", "--json", "-o", "all"]).json();
    let rows = json["rows"].as_array().expect("rows");
    for batches in [
        arrow(&run(&["fields", "--arrow", "-o", "all"])),
        parquet(&run(&["fields", "--parquet", "-o", "all"])),
    ] {
        let [batch] = batches.as_slice() else {
            panic!("few rows are one batch");
        };
        assert_eq!(batch.num_rows(), rows.len());
        let texts = |name: &str| -> &StringArray { batch.column_by_name(name).expect("a column").as_string() };
        let absent = batch.column_by_name("absent").expect("reasons").as_map();
        for (index, row) in rows.iter().enumerate() {
            let reasons = absent.value(index);
            let keys: &StringArray = reasons.column(0).as_string();
            let words: &StringArray = reasons.column(1).as_string();
            for name in ["name", "group", "kind", "origin", "since", "access", "meaning"] {
                let of_json = row[name].as_str();
                assert_eq!(texts(name).is_null(index), of_json.is_none(), "{row}");
                match of_json {
                    Some(text) => assert_eq!(texts(name).value(index), text),
                    None => {
                        let place = (0..keys.len()).find(|&key| keys.value(key) == name);
                        let reason = words.value(place.expect("a reason"));
                        assert_eq!(row["absent"][name], reason, "{row}");
                    }
                }
            }
        }
    }
}

/// Check numbers, lists, names, and text that is not UTF-8.
#[test]
fn kinds_have_types() {
    let sleeper = Sleeper::new("a\nb");
    let pid = sleeper.pid();
    let fields = "pid,start_ns,euid,cap_effective,cmdline,kernel_thread,cpu_percent,groups,swap_bytes";
    let args = ["ps", "-p", &pid, "--names", "-o", fields];
    let json = run(&[&args[..], &["--json"]].concat()).json();
    let row = &json["rows"][0];
    for batches in [
        arrow(&run(&[&args[..], &["--arrow"]].concat())),
        parquet(&run(&[&args[..], &["--parquet"]].concat())),
    ] {
        let batch = &batches[0];
        let column = |name: &str| batch.column_by_name(name).unwrap_or_else(|| panic!("{name}"));
        let unsigned = |name: &str| column(name).as_primitive::<UInt64Type>().value(0);
        assert_eq!(row["pid"], unsigned("pid"));
        assert_eq!(row["euid"], unsigned("euid"));
        assert_eq!(row["swap_bytes"], unsigned("swap_bytes"));
        assert_eq!(row["start_ns"], column("start_ns").as_primitive::<Int64Type>().value(0));
        let mask = format!("{:#x}", unsigned("cap_effective"));
        assert_eq!(row["cap_effective"], mask.as_str());
        assert_eq!(row["kernel_thread"], column("kernel_thread").as_boolean().value(0));
        let name = column("euid_name").as_string::<i32>().value(0).to_owned();
        assert_eq!(row["euid_name"], name.as_str());
        let list = |name: &str| -> Vec<Value> {
            let values = column(name).as_list::<i32>().value(0);
            values.as_string::<i32>().iter().flatten().map(Value::from).collect()
        };
        assert_eq!(row["cmdline"], Value::from(list("cmdline")));
        assert_eq!(row["cap_effective_names"], Value::from(list("cap_effective_names")));
    }
}

/// Check that a stream has its samples as they come, that a file does not wait for ever, and that
/// neither is written to a terminal.
#[test]
fn streams_and_files_have_their_limits() {
    let own = std::process::id().to_string();
    let watch = ["watch", "-d", "0.05", "-p", &own, "-o", "pid,cpu_percent"];
    let batches = arrow(&run(&[&watch[..], &["-n", "3", "--arrow"]].concat()));
    assert_eq!(batches.len(), 3, "a batch for each sample");
    let samples = batches.iter().flat_map(|batch| {
        let column = batch
            .column_by_name("sample")
            .expect("it has samples")
            .as_primitive::<UInt64Type>();
        column.values().to_vec()
    });
    assert_eq!(samples.collect::<Vec<u64>>(), [0, 1, 2]);
    // Its documents have a sum, and its streams go on.
    for more in [&["-o", "pid,pss_bytes"][..], &["--by", "user"], &["--total"]] {
        let args = ["mem", "--watch", "0.05", "-n", "3", "-p", &own, "--arrow"];
        let batches = arrow(&run(&[&args[..], more].concat()));
        let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
        assert_eq!((batches.len(), rows), (3, 3), "{more:?}");
    }
    let file = parquet(&run(&[&watch[..], &["-n", "3", "--parquet"]].concat()));
    assert_eq!(
        file.iter().map(RecordBatch::num_rows).sum::<usize>(),
        3,
        "it has an end"
    );
    let endless = run(&[&watch[..], &["--parquet"]].concat());
    assert_eq!(endless.code, Some(2));
    assert!(endless.stderr.contains("use --arrow"), "{}", endless.stderr);
    for form in ["--parquet", "--arrow"] {
        let shown = run_on_terminal(&mut command(&["ps", form]), 80, 24);
        assert_eq!(shown.code, Some(1), "{shown:?}");
        assert!(shown.stderr.contains("redirect the output"), "{shown:?}");
        check_closed_pipe(&["ps", form]);
        check_full_disk(&["ps", form]);
    }
}
