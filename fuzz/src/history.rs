//! Recordings, which may come from anyone: any bytes are read or refused, and each field of each
//! process that is read has a value or a reason.

use taskdiag_core::field::{Field, Fields};
use taskdiag_core::snapshot::Snapshot;
use taskdiag_history::about::About;
use taskdiag_history::decode::Decoder;
use taskdiag_history::encode::{Encoder, Sample};
use taskdiag_history::events::IntervalEvents;
use taskdiag_history::figures::{Figures, Part};
use taskdiag_history::piece::{self, Time, MAGIC};

pub fn run(data: &[u8]) {
    // Unchanged: mostly refused.
    read(data.to_vec());
    // After the head of a real segment, as the content of a sample, or after a real sample as its
    // compressed form, with the right checksum.
    let Some((&how, body)) = data.split_first() else {
        return;
    };
    let mut segment = Vec::new();
    let time = Time::default();
    let Ok(mut encoder) = Encoder::begin(&About::default(), time, &mut segment) else {
        return;
    };
    if how & 1 != 0 {
        encoder.append_body(time, body, &mut segment).expect("it is small");
    } else {
        let (snapshot, figures, happened) = (Snapshot::default(), Figures::new(), IntervalEvents::default());
        let part = Part {
            figures: &figures,
            version: 0,
        };
        let sample = Sample {
            time,
            tasks: &snapshot,
            others: None,
            figures: &[part],
            happened: &happened,
        };
        encoder.sample(&sample, &mut segment).expect("it is small");
        piece::append(&mut segment, time, body);
    }
    read(segment);
    // As the head.
    let mut segment = MAGIC.to_vec();
    piece::append(&mut segment, time, body);
    read(segment);
}

fn read(bytes: Vec<u8>) {
    let Ok(Some(mut decoder)) = Decoder::open(bytes) else {
        return;
    };
    while let Ok(None) = decoder.advance() {
        let Ok(figures) = decoder.figures() else { continue };
        let mut snapshot = Snapshot::default();
        let fields: Fields = Field::ALL.iter().copied().collect();
        snapshot.clear(fields);
        if decoder.tasks_into(&figures, &mut snapshot).is_ok() {
            for task in snapshot.tasks().take(100) {
                for &field in Field::ALL {
                    if let Ok(value) = task.value(field) {
                        let _ = value.to_string();
                    }
                }
            }
        }
    }
}
