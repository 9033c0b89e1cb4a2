//! What the values of a field are.

/// What a field's values are: decides their unit and how they are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A process, thread, user, group or device number, or another number that is not counted.
    Id,
    /// A user id.
    User,
    /// A group id.
    GroupId,
    /// A number of things.
    Count,
    /// A number that may be negative.
    Signed,
    /// A number of bytes.
    Bytes,
    /// A time in nanoseconds.
    Nanoseconds,
    /// A percentage, in steps of a thousandth of a percent.
    Percent,
    /// Yes or no.
    Flag,
    /// One letter.
    Letter,
    /// Bytes, usually text.
    Text,
    /// A time of the clock: text as in RFC 3339, in UTC and whole seconds.
    Time,
    /// A list of byte strings.
    Texts,
    /// A set of capabilities as a bit mask, written in hexadecimal.
    Capabilities,
    /// A set of signals as a bit mask, written in hexadecimal: signal N is bit N - 1.
    Signals,
    /// Flags as a bit mask, written in hexadecimal.
    Mask,
    /// An address, written in hexadecimal.
    Address,
    /// Permission bits: a number, which tables show in octal.
    Mode,
    /// A list of ids.
    Ids,
    /// A set of processors, written like `0-3,7`.
    Cpus,
    /// Resource limits, each soft and hard.
    Limits,
}

impl Kind {
    /// The kind and unit in a word or two, for documentation.
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Id => "number",
            Kind::User => "user id",
            Kind::GroupId => "group id",
            Kind::Count => "count",
            Kind::Signed => "signed number",
            Kind::Bytes => "bytes",
            Kind::Nanoseconds => "nanoseconds",
            Kind::Percent => "percent",
            Kind::Flag => "true or false",
            Kind::Letter => "letter",
            Kind::Text => "text",
            Kind::Time => "time (RFC 3339)",
            Kind::Texts => "list of texts",
            Kind::Capabilities => "set of capabilities, in hexadecimal",
            Kind::Signals => "set of signals, in hexadecimal",
            Kind::Mask => "flags, in hexadecimal",
            Kind::Address => "address, in hexadecimal",
            Kind::Mode => "permission bits",
            Kind::Ids => "list of numbers",
            Kind::Cpus => "list of processors",
            Kind::Limits => "resource limits",
        }
    }
}
