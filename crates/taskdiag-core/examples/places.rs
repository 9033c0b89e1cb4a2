//! Prints where procfs and records have the fields, for the generator of the Go client: the constants
//! of records, the groups and their bits, the offsets of members, and for each field the type of its
//! attribute, offset and size of the number, the number of the reason that all ones stand for, and the file, key, number
//! and word of its text.

use taskdiag_core::field::{Field, Groups, RecordPlace};
use taskdiag_core::record::header::{constants, structures};

fn main() {
    let or_dash = |text: &'static str| if text.is_empty() { "-" } else { text };
    for constant in constants() {
        println!("constant {} {}", constant.name, constant.value);
    }
    for group in Groups::ALL.iter() {
        println!("group {} {}", group.name(), group as u32);
    }
    for (structure, (offset, member)) in structures()
        .iter()
        .flat_map(|of| of.members().map(move |member| (of, member)))
    {
        println!("member {}.{} {offset}", structure.name, member.name);
    }
    for field in Field::ALL {
        let info = field.info();
        let (attribute, offset, size, all_ones) = match info.record {
            RecordPlace::Member(member) => (member.attribute, member.offset, member.size, member.all_ones),
            RecordPlace::Payload(attribute) => (attribute, 0, 0, None),
            RecordPlace::Other => (0, 0, 0, None),
        };
        let (all_ones, place) = (all_ones.map_or(0, |reason| reason as u16), &info.places[0]);
        let (file, key) = (or_dash(place.file.name()), or_dash(place.key));
        println!(
            "field {field} {attribute} {offset} {size} {all_ones} {file} {key} {} {}",
            place.at, place.word
        );
    }
}
