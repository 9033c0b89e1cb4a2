//! What the values of a field are.

crate::named_enum! {
    /// What a field's values are. This decides their unit and how they are written.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Kind {
        /// A process, thread, user, group or device number, or another number that is not counted.
        Id => "number",
        /// A user id.
        User => "user id",
        /// A group id.
        GroupId => "group id",
        /// A number of things.
        Count => "count",
        /// A number that may be negative.
        Signed => "signed number",
        /// A number of bytes.
        Bytes => "bytes",
        /// A time in nanoseconds.
        Nanoseconds => "nanoseconds",
        /// A percentage, in steps of a thousandth of a percent.
        Percent => "percent",
        /// Yes or no.
        Flag => "true or false",
        /// One letter.
        Letter => "letter",
        /// Bytes, usually text.
        Text => "text",
        /// A wall-clock time: text as in RFC 3339, in UTC and whole seconds.
        Time => "time (RFC 3339)",
        /// A list of byte strings.
        Texts => "list of texts",
        /// A set of capabilities as a bit mask, written in hexadecimal.
        Capabilities => "set of capabilities, in hexadecimal",
        /// A set of signals as a bit mask, written in hexadecimal: signal N is bit N - 1.
        Signals => "set of signals, in hexadecimal",
        /// Flags as a bit mask, written in hexadecimal.
        Mask => "flags, in hexadecimal",
        /// An address, written in hexadecimal.
        Address => "address, in hexadecimal",
        /// Permission bits: a number, which tables show in octal.
        Mode => "permission bits",
        /// A list of ids.
        Ids => "list of numbers",
        /// A set of processors, written like `0-3,7`.
        Cpus => "list of processors",
        /// Resource limits, each soft and hard.
        Limits => "resource limits",
    }
    /// The kind and unit in a word or two, for documentation.
    pub fn as_str;
}
