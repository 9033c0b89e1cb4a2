//! What a segment says about itself, in its first piece: its origin ([`About`]), and the columns of
//! its task table ([`Schema`]).

use crate::varint::{self, Input};
use crate::Damage;

/// The description of a segment. Unknown texts are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct About {
    /// The name of the machine.
    pub host: String,
    /// The random id of the boot (random(4)). Times since boot count from this boot.
    pub boot_id: String,
    /// The version of the kernel.
    pub kernel: String,
    /// The version of taskdiag that wrote it.
    pub version: String,
    /// The tier: how fine it is.
    pub tier: String,
    /// The requested interval between two samples, in nanoseconds.
    pub every_ns: u64,
    /// The names of the requested fields of tasks.
    pub fields: Vec<String>,
    /// What is missing, in words: for example, why there are no events.
    pub notes: Vec<String>,
}

/// The columns of a segment's task table, and the names that their values refer to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schema {
    /// The names of the columns.
    pub columns: Vec<String>,
    /// The attributes of records, in the order of their bits.
    pub attributes: Vec<String>,
    /// The fields. Lists of absent values refer to them by their position here.
    pub fields: Vec<String>,
}

/// No version has this many columns, and no list has this many texts.
const MAX_COLUMNS: usize = 4096;

/// The maximum size of the first piece, in bytes before compression. It has less than a hundredth.
pub(crate) const MAX_BYTES: usize = 4 << 20;

pub(crate) fn encode(about: &About, schema: &Schema, out: &mut Vec<u8>) {
    let About {
        host,
        boot_id,
        kernel,
        version,
        tier,
        every_ns,
        fields,
        notes,
    } = about;
    for text in [host, boot_id, kernel, version, tier] {
        varint::text(out, text.as_bytes());
    }
    varint::number(out, *every_ns);
    for list in [fields, notes, &schema.attributes, &schema.fields, &schema.columns] {
        varint::number(out, list.len() as u64);
        list.iter().for_each(|text| varint::text(out, text.as_bytes()));
    }
}

pub(crate) fn decode(mut input: Input<'_>) -> Result<(About, Schema), Damage> {
    let input = &mut input;
    let text = |input: &mut Input<'_>| Ok(String::from_utf8_lossy(input.text()?).into_owned());
    let list = |input: &mut Input<'_>| {
        let count = input.count()?;
        if count > MAX_COLUMNS {
            return Err(Damage("a list is longer than any version writes"));
        }
        (0..count).map(|_| text(input)).collect::<Result<Vec<String>, Damage>>()
    };
    let about = About {
        host: text(input)?,
        boot_id: text(input)?,
        kernel: text(input)?,
        version: text(input)?,
        tier: text(input)?,
        every_ns: input.number()?,
        fields: list(input)?,
        notes: list(input)?,
    };
    let schema = Schema {
        attributes: list(input)?,
        fields: list(input)?,
        columns: list(input)?,
    };
    if schema.attributes.len() > 64 {
        return Err(Damage("it has more attributes than any version writes"));
    }
    Ok((about, schema))
}
