//! What the machine says: the only file that looks at the environment.

use std::fs;
use std::path::PathBuf;

/// Where temporary folders go (`TMPDIR`).
pub fn temporary_folder() -> PathBuf {
    std::env::temp_dir()
}

/// Memory that this process may use, in bytes, where the system tells.
pub fn memory_bytes() -> Option<u64> {
    let of_machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| total_of(&text));
    let of_group = fs::read_to_string("/sys/fs/cgroup/memory.max").ok().and_then(|text| text.trim().parse().ok());
    [of_machine, of_group].into_iter().flatten().min()
}

fn total_of(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024)
}

/// Cores that this process may use.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_is_read_in_bytes() {
        assert_eq!(total_of("MemTotal:       16384 kB\nMemFree: 1 kB\n"), Some(16384 * 1024));
        assert_eq!(total_of("nothing"), None);
    }
}
