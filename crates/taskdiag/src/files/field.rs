//! The table of the fields of open files: names, kinds and meanings, and how each is read.

use taskdiag_core::absent::{Absent, Known};
use taskdiag_core::field::Field;
use taskdiag_core::open_file::bpf_type;
use taskdiag_core::set::Set;
use taskdiag_core::snapshot::Task;
use taskdiag_core::value::Value;

use super::{Kind, OpenFile, Wants};

taskdiag_core::row_fields! {
    FileField: "A field of open files: a key of a row.";
    Pid "pid" Id "The process.";
    Comm "comm" Text "The name of the process.";
    Use "use" Text "What it has the file for: fd, cwd, root, exe, map.";
    Fd "fd" Id "The number of the descriptor.";
    Kind "kind" Text "What the file is: file, dir, char, block, fifo, socket, link, anon.";
    AnonKind "anon_kind" Text "What it is if it is anon: eventfd, epoll, timerfd, signalfd, inotify, pidfd, bpf, io_uring, userfaultfd, perf, dmabuf, other.";
    Access "access" Text "What the descriptor was opened for: r, w, rw, path (O_PATH), ioctl (mode 3).";
    OpenFlags "open_flags" Mask "The flags of open(2), with O_CLOEXEC if the descriptor is closed on execve(2).";
    OffsetBytes "offset_bytes" Signed "Where the next read or write begins.";
    SizeBytes "size_bytes" Bytes "The length of the file.";
    AllocatedBytes "allocated_bytes" Bytes "What the file occupies.";
    DevMajor "dev_major" Id "Major number of the device that the file is on, as stat(2) has it.";
    DevMinor "dev_minor" Id "Minor number of that device.";
    Inode "inode" Id "Inode number, as stat(2) has it.";
    Nlink "nlink" Count "How many names the file has.";
    Deleted "deleted" Flag "Whether it has no name: it was deleted, or never had one.";
    MntId "mnt_id" Id "The mount that it was opened on, as in /proc/PID/mountinfo.";
    Name "name" Text "What readlink(2) says of /proc/PID/fd/FD: a path, with \" (deleted)\" if it is gone, or the kernel's word.";
    Detail "detail" Text "The lines of /proc/PID/fdinfo/FD that not all files have.";
    BpfType "bpf_type" Text "What kind of map, program or link of bpf(2) it is, as bpftool(8) has it: hash, array, tracing and so on.";
    BpfName "bpf_name" Text "The name that its creator gave a map or a program of bpf(2), of at most 15 bytes.";
    User "user" Text "The effective user of the process, by name.";
    Peers "peers" Texts "The descriptors at the other end of a pipe or a socket: pid, comm and fd of each.";
    Tid "tid" Id "The thread that has it for itself, and does not share it with the process.";
}

impl FileField {
    /// All fields.
    pub const ALL: &'static [FileField] = &FileField::EVERY;

    /// The fields that a request has by default.
    pub(super) fn usual() -> Set<FileField> {
        let others = FileField::Detail
            | FileField::BpfType
            | FileField::BpfName
            | FileField::AllocatedBytes
            | FileField::Peers
            | FileField::User;
        Set::from_iter(FileField::ALL.iter().copied()).without(others)
    }

    /// The field of the process, if this is one. The query for the processes must ask for it.
    pub fn of_tasks(self) -> Option<Field> {
        match self {
            FileField::Pid => Some(Field::Pid),
            FileField::Comm => Some(Field::Comm),
            FileField::User => Some(Field::User),
            _ => None,
        }
    }
}

/// What to read for the value of a field.
impl From<FileField> for Wants {
    fn from(field: FileField) -> Wants {
        match field {
            FileField::Name => Wants::NAMES,
            FileField::Access | FileField::OpenFlags | FileField::OffsetBytes | FileField::MntId => Wants::FLAGS,
            FileField::Detail | FileField::BpfType => Wants::DETAIL,
            FileField::BpfName => Wants::BPF_NAMES,
            FileField::Peers => Wants::PEERS,
            FileField::AllocatedBytes => Wants::SPACE,
            FileField::Pid | FileField::Comm | FileField::Use | FileField::Fd | FileField::User | FileField::Tid => {
                Wants::empty()
            }
            _ => Wants::STAT,
        }
    }
}

/// A file of a process as a row of values by field.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    task: Task<'a>,
    file: OpenFile<'a>,
}

impl<'a> Row<'a> {
    /// A file of a process as a row.
    pub fn new(task: &Task<'a>, file: &OpenFile<'a>) -> Row<'a> {
        Row {
            task: *task,
            file: *file,
        }
    }

    /// The process.
    pub(super) fn task(&self) -> &Task<'a> {
        &self.task
    }

    /// The value of a field. [`Absent::NotApplicable`] if such a file has none: it is not a
    /// descriptor, or not an object of the kernel.
    pub fn value(&self, field: FileField) -> Known<Value<'a>> {
        match field.of_tasks() {
            Some(field) => self.task.value(field),
            None => self.file.value(field),
        }
    }
}

impl<'a> OpenFile<'a> {
    /// The value of a field that does not describe the process.
    pub(super) fn value(&self, field: FileField) -> Known<Value<'a>> {
        let word = |word: &'static str| Value::Text(word.as_bytes());
        let value = match field {
            FileField::Use => Some(word(self.used_as.name())),
            FileField::Fd => self.fd.map(Value::from),
            FileField::Tid => self.tid.map(Value::from),
            FileField::Kind => Some(word(self.kind?.name())),
            FileField::AnonKind => match self.kind? {
                Kind::Anon(kind) => Some(word(kind.name())),
                _ => None,
            },
            FileField::Access => self.access()?.map(|access| word(access.name())),
            FileField::OpenFlags => self.open_flags?.map(|flags| Value::Mask(flags.into())),
            FileField::OffsetBytes => self.offset_bytes?.map(Value::Signed),
            FileField::SizeBytes => Some(self.size_bytes?.into()),
            FileField::AllocatedBytes => Some(self.allocated_bytes?.into()),
            FileField::DevMajor => Some(self.device?.major.into()),
            FileField::DevMinor => Some(self.device?.minor.into()),
            FileField::Inode => Some(self.inode?.into()),
            FileField::Nlink => Some(self.nlink?.into()),
            FileField::Deleted => Some(self.is_deleted()?.into()),
            FileField::MntId => Some(self.mnt_id?.into()),
            FileField::Name => Some(Value::Text(self.name?)),
            FileField::Detail => self.detail?.map(Value::Text),
            FileField::BpfType => self.detail?.and_then(bpf_type).map(Value::Text),
            FileField::BpfName => self.bpf_name?.map(Value::Text),
            FileField::Peers => self.peers?.map(Value::Owners),
            FileField::Pid | FileField::Comm | FileField::User => return Err(Absent::Unsupported),
        };
        value.ok_or(Absent::NotApplicable)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::file;
    use super::*;

    /// Check that names are unique, and that a field of processes has the same name in both tables.
    #[test]
    fn fields_have_names() {
        for (index, field) in FileField::ALL.iter().enumerate() {
            assert_eq!(*field as usize, index);
            let before = &FileField::ALL[..index];
            assert!(before.iter().all(|other| other.name() != field.name()), "{field}");
            assert!(field.of_tasks().is_none_or(|of| of.name() == field.name()));
        }
    }

    /// Check that values are read only for fields that need them, and that all of them are there.
    #[test]
    fn values_are_read_for_their_fields() {
        let wants = |fields: &[FileField]| fields.iter().copied().map(Wants::from).collect::<Wants>();
        assert_eq!(
            wants(&[FileField::Pid, FileField::Fd, FileField::Use, FileField::User]),
            Wants::empty()
        );
        assert_eq!(
            wants(&[FileField::Name, FileField::Access]),
            Wants::NAMES | Wants::FLAGS
        );
        assert_eq!(wants(FileField::ALL), Wants::all());
        for &field in FileField::ALL {
            if field.of_tasks().is_some() {
                continue;
            }
            let bare = file().only(Wants::empty()).value(field);
            let is_read = !Wants::from(field).is_empty();
            assert_eq!(bare == Err(Absent::NotAsked), is_read, "{field}");
        }
        assert_eq!(file().value(FileField::AnonKind), Err(Absent::NotApplicable));
        assert_eq!(file().value(FileField::OpenFlags), Ok(Value::Mask(0o100_001)));
        assert_eq!(file().value(FileField::Deleted), Ok(Value::Flag(false)));
    }
}
