//! An account of the machine's memory: the proportional sizes of processes, the page cache and the
//! kernel's own memory, which add up to `MemTotal`.

use std::borrow::Cow;

use taskdiag::{Absent, Field, Known};

use crate::host::MemInfo;

/// The fields of processes whose sums are in the account: anonymous memory, page cache of mapped
/// files, and mapped shared memory and tmpfs.
pub const FIELDS: [Field; 3] = [Field::PssAnonBytes, Field::PssFileBytes, Field::PssShmemBytes];

/// One line of an account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The name, with its unit; the key in machine-readable output.
    pub name: &'static str,
    /// The size. Can be negative, because the numbers are not read at the same moment. Absent if
    /// the kernel has no counter of it.
    pub bytes: Known<i64>,
    /// The line that contains this one; empty for lines that add up to the total.
    pub part_of: &'static str,
    pub meaning: Cow<'static, str>,
}

/// The account. The known lines that are not part of another line add up exactly to the total.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// `MemTotal`, in bytes.
    pub total_bytes: u64,
    /// The lines. Each comes after the line that contains it.
    pub lines: Vec<Line>,
    /// What free(1) shows besides, in the same form: the parts of the others, and the swap space.
    pub free: Vec<Line>,
}

impl Account {
    /// The line that contains the sums over processes.
    pub const PROCESSES: &'static str = "processes_bytes";

    /// Builds the account. `processes` are the sums of [`FIELDS`]. `None` if there is no `MemTotal`.
    pub fn new(info: &MemInfo, processes: [u64; FIELDS.len()]) -> Option<Account> {
        let total_bytes = info.bytes("MemTotal")?;
        let mut lines = explained(info, processes);
        let whole = lines.iter().filter(|line| line.part_of.is_empty());
        let explained: i64 = whole.flat_map(|line| line.bytes).sum();
        lines.push(line(
            "unexplained_bytes",
            Some(total_bytes as i64 - explained),
            "",
            "in no counter: pages of drivers, zram, networking; free pages that processors keep for themselves",
        ));
        let free = free(info, total_bytes as i64);
        Some(Account {
            total_bytes,
            lines,
            free,
        })
    }
}

fn line(name: &'static str, bytes: Option<i64>, part_of: &'static str, meaning: &'static str) -> Line {
    Line {
        name,
        bytes: bytes.ok_or(Absent::Unsupported),
        part_of,
        meaning: meaning.into(),
    }
}

/// Lines, each with its name, the line that contains it, its meaning, and its size.
macro_rules! lines {
    ($($name:expr, $part_of:expr, $meaning:literal => $bytes:expr;)*) => {
        vec![$(line($name, $bytes, $part_of, $meaning)),*]
    };
}

/// The lines that come from counters.
fn explained(info: &MemInfo, processes: [u64; FIELDS.len()]) -> Vec<Line> {
    // No machine has more memory, and sums of such numbers can't overflow.
    let number = |name: &str| Some(info.bytes(name)?.min(1 << 56) as i64);
    // Kernels have some of these counters only.
    let sum = |numbers: &[Option<i64>]| numbers.iter().copied().flatten().reduce(|sum, number| sum + number);
    let [anon, file, shmem] = processes.map(|bytes| bytes as i64);
    // With CONFIG_VMAP_STACK, kernel stacks are part of VmallocUsed.
    let stacks = number("KernelStack");
    let vmalloc = number("VmallocUsed").map(|used| (used - stacks.unwrap_or(0)).max(0));
    let (hugetlb, hugetlb_free) = (number("Hugetlb"), number(MemInfo::HUGETLB_FREE));
    let tables = sum(&[number("PageTables"), number("SecPageTables")]);
    let others = ["Slab", "Percpu", "Zswap"].map(number);
    let kernel = sum(&[sum(&others), stacks, tables, vmalloc]);
    const PROCESSES: &str = Account::PROCESSES;
    const KERNEL: &str = "kernel_bytes";
    lines! {
        PROCESSES, "", "PSS of all processes that could be read" => Some(anon + file + shmem);
        "pss_anon_bytes", PROCESSES, "anonymous memory" => Some(anon);
        "pss_file_bytes", PROCESSES, "page cache of their mapped files" => Some(file);
        "pss_shmem_bytes", PROCESSES, "their mapped shared memory and tmpfs" => Some(shmem);
        "other_anonymous_bytes", "", "anonymous memory of processes that were not read" =>
            number("AnonPages").map(|pages| pages - anon);
        "unmapped_cache_bytes", "", "page cache, including tmpfs, that no process that was read has mapped" =>
            sum(&[number("Cached"), number("Buffers")]).map(|cache| cache - file - shmem);
        "swap_cache_bytes", "", "pages in memory and in swap" => number("SwapCached");
        "hugetlb_bytes", "", "huge pages set aside for hugetlbfs" => hugetlb;
        "hugetlb_used_bytes", "hugetlb_bytes", "in mappings and files" =>
            hugetlb.zip(hugetlb_free).and_then(|(all, free)| all.checked_sub(free));
        "hugetlb_free_bytes", "hugetlb_bytes", "in none yet, promised to some or not" => hugetlb_free;
        KERNEL, "", "the kernel's own" => kernel;
        "slab_bytes", KERNEL, "kernel objects" => number("Slab");
        "slab_reclaimable_bytes", "slab_bytes", "reclaimable" => number("SReclaimable");
        "kernel_stacks_bytes", KERNEL, "kernel stacks of threads" => stacks;
        "page_tables_bytes", KERNEL, "page tables" => tables;
        "vmalloc_bytes", KERNEL, "other memory by vmalloc" => vmalloc;
        "percpu_bytes", KERNEL, "memory of each processor" => number("Percpu");
        "zswap_bytes", KERNEL, "compressed swap" => number("Zswap");
        "free_bytes", "", "unused" => number("MemFree");
    }
}

/// What free(1) of procps 4 computes.
fn free(info: &MemInfo, total: i64) -> Vec<Line> {
    let number = |name: &str| Some(info.bytes(name)?.min(1 << 56) as i64);
    // In some containers it is that of the host.
    let available = number("MemAvailable").filter(|&available| available <= total);
    let (swap, swap_free) = (number("SwapTotal"), number("SwapFree"));
    lines! {
        "used_bytes", "", "MemTotal - MemAvailable, as in free(1)" => available.map(|available| total - available);
        "available_bytes", "", "MemAvailable: what programs can get without swapping" => available;
        "swap_total_bytes", "", "SwapTotal: swap space" => swap;
        "swap_used_bytes", "swap_total_bytes", "SwapTotal - SwapFree" =>
            swap.zip(swap_free).map(|(all, free)| all - free);
        "swap_free_bytes", "swap_total_bytes", "SwapFree" => swap_free;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TEXT: &[u8] = b"MemTotal: 1000 kB\nMemFree: 300 kB\nBuffers: 10 kB\nCached: 200 kB\nAnonPages: 150 kB\nSlab: 60 kB\n\
        SReclaimable: 20 kB\nKernelStack: 5 kB\nPageTables: 8 kB\nVmallocUsed: 15 kB\nHugePages_Total: 3\nPercpu: x kB\n";

    fn bytes(account: &Account, name: &str) -> Known<i64> {
        let line = account.lines.iter().find(|line| line.name == name);
        line.expect("a line").bytes.map(|bytes| bytes / 1024)
    }

    /// Check the lines of an account of round numbers, and that counters which the kernel lacks are
    /// absent.
    #[test]
    fn accounts_add_up() {
        let processes = [140, 50, 20].map(|kib: u64| kib << 10);
        let account = Account::new(&MemInfo::parse(TEXT), processes).expect("a total");
        for (name, kib) in [
            ("processes_bytes", 210),
            ("other_anonymous_bytes", 10),
            ("unmapped_cache_bytes", 140),
            ("kernel_bytes", 83),
            ("vmalloc_bytes", 10),
            ("free_bytes", 300),
            ("unexplained_bytes", 257),
        ] {
            assert_eq!(bytes(&account, name), Ok(kib), "{name}");
        }
        // This text does not have them.
        for name in [
            "percpu_bytes",
            "zswap_bytes",
            "swap_cache_bytes",
            "hugetlb_bytes",
            "hugetlb_used_bytes",
            "hugetlb_free_bytes",
        ] {
            assert_eq!(bytes(&account, name), Err(Absent::Unsupported), "{name}");
        }
    }

    proptest! {
        /// Check that the lines add up to the total for any text, and that any text can be parsed.
        #[test]
        fn lines_add_up_to_the_total(text in ".{0,200}", numbers in proptest::collection::vec(0..1u64 << 40, 3)) {
            let text = [TEXT, text.as_bytes()].concat();
            let account = Account::new(&MemInfo::parse(&text), [numbers[0], numbers[1], numbers[2]]).expect("a total");
            let sum: i64 = account.lines.iter().filter(|line| line.part_of.is_empty()).flat_map(|line| line.bytes).sum();
            prop_assert_eq!(sum, account.total_bytes as i64);
        }
    }
}
