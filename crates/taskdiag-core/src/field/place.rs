//! Where procfs and records have a field.

use super::Files;
use crate::absent::Absent;

/// Where procfs has a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The file, or the directory of a link. [`Files::NONE`] if no file has it.
    pub file: Files,
    /// The name of the word, line or link. Empty if the value is the whole file, or is found in
    /// another way.
    pub key: &'static str,
    /// Which word, line or link it is: for `stat` from 1, as in proc_pid_stat(5), otherwise from 0.
    pub at: u8,
    /// Which word of a line.
    pub word: u8,
}

impl Place {
    pub(super) const NOWHERE: Place = Place::new(Files::NONE, "", 0, 0);

    pub(super) const fn new(file: Files, key: &'static str, at: u8, word: u8) -> Place {
        Place { file, key, at, word }
    }
}

/// Where a record has a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordPlace {
    /// A number in an attribute.
    Member(Member),
    /// The payload of an attribute of this type.
    Payload(u16),
    /// More than one of these, or none.
    Other,
}

/// A number in an attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// The type of the attribute.
    pub attribute: u16,
    /// The length of the payload.
    pub len: usize,
    /// The offset of the number in the payload.
    pub offset: usize,
    /// Its size in bytes.
    pub size: usize,
    /// What all ones mean, if they are no number.
    pub all_ones: Option<Absent>,
}

impl RecordPlace {
    pub(super) const fn member<P, M>(
        attribute: u16,
        offset: usize,
        _: fn(&P) -> &M,
        all_ones: Option<Absent>,
    ) -> RecordPlace {
        RecordPlace::Member(Member {
            attribute,
            len: size_of::<P>(),
            offset,
            size: size_of::<M>(),
            all_ones,
        })
    }
}

/// A place in procfs, as rows name it.
macro_rules! place {
    ($text:literal) => { Place::NOWHERE };
    ($file:ident $($key:ident)?: $text:literal) => { place!($file $($key)?) };
    (stat $word:ident) => { Place::new(Files::STAT, stringify!($word), Word::$word as u8 + 1, 0) };
    (status $line:ident $($word:literal)?) => {
        Place::new(Files::STATUS, stringify!($line), Line::$line as u8, 0 $(+ $word)?)
    };
    (io $line:ident) => { Place::new(Files::IO, stringify!($line), IoLine::$line as u8, 0) };
    (smaps_rollup $line:ident) => { Place::new(Files::SMAPS_ROLLUP, stringify!($line), SmapsLine::$line as u8, 0) };
    (schedstat $word:literal) => { Place::new(Files::SCHEDSTAT, "", $word, 0) };
    (ns/$link:ident) => { Place::new(Files::NS, stringify!($link), NamespaceLink::$link as u8, 0) };
    (attr/current) => { Place::new(Files::SECURITY_LABEL, "", 0, 0) };
    ($file:ident) => { Place::new(files::named::$file, "", 0, 0) };
}

/// The places of a row, at most two.
macro_rules! places {
    ([$file:ident $key:ident | $($other:tt)*]) => { [place!($file $key), place!($($other)*)] };
    ([$($place:tt)*]) => { [place!($($place)*), Place::NOWHERE] };
}

/// The place for people.
macro_rules! origin {
    ([$($file:ident $($key:ident)?:)? $text:literal]) => {
        $text
    };
    ([$directory:ident/$name:ident]) => {
        concat!(stringify!($directory), "/", stringify!($name))
    };
    ([$file:ident $key:ident $($rest:tt)*]) => {
        concat!(stringify!($file), " ", stringify!($key))
    };
    ([$file:ident $($word:literal)?]) => {
        stringify!($file)
    };
}

/// Where a record has what a row reads: by default the member of the group's structure that has the
/// name of the field.
macro_rules! record_place {
    ($group:ident $name:ident [attr $attr:ident $($read:tt)*]) => { RecordPlace::Payload(attr::$attr) };
    ($group:ident $name:ident [|$($read:tt)*]) => { RecordPlace::Other };
    ($group:ident $name:ident [$attr:ident $part:ident.$member:ident]) => {
        record_place!(@ attr::$attr, $part $member None)
    };
    ($group:ident $name:ident [namespace]) => { record_place!($group $name [$name]) };
    ($group:ident $name:ident [maybe]) => { record_place!($group $name [maybe $name]) };
    ($group:ident $name:ident [maybe $member:ident]) => {
        record_place!(@ record::$group::KIND, $group $member Some($crate::absent::Absent::Unsupported))
    };
    ($group:ident $name:ident [none]) => {
        record_place!(@ record::$group::KIND, $group $name Some($crate::absent::Absent::NotApplicable))
    };
    ($group:ident $name:ident [$member:ident $(|$($read:tt)*)?]) => {
        record_place!(@ record::$group::KIND, $group $member None)
    };
    ($group:ident $name:ident) => { record_place!($group $name [$name]) };
    (@ $kind:expr, $part:ident $member:ident $all_ones:expr) => {
        RecordPlace::member($kind, offset_of!(record::$part, $member), |part: &record::$part| &part.$member, $all_ones)
    };
}

pub(crate) use {origin, place, places, record_place};
