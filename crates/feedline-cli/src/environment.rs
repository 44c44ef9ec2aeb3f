//! The environment: variables, memory and cores. No other file of this crate reads environment variables.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::PathBuf;

/// The cache folder. If it is set but empty, nothing is cached.
const CACHE_FOLDER: &str = "FEEDLINE_CACHE";
/// The cache folder of all programs (XDG). `~/.cache` if it is not set.
const USER_CACHE: &str = "XDG_CACHE_HOME";
const HOME: &str = "HOME";

/// The socket of the node.
const NODE_SOCKET: &str = "FEEDLINE_NODE";
/// The folder for sockets of this user.
const RUNTIME_FOLDER: &str = "XDG_RUNTIME_DIR";

/// The socket of this user's node.
pub(crate) fn node_socket() -> PathBuf {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(socket) = variable(NODE_SOCKET) {
        return socket;
    }
    // The XDG specification says that relative paths are invalid and must be ignored.
    let runtime = variable(RUNTIME_FOLDER).filter(|folder| folder.is_absolute()).map(|folder| folder.join("feedline"));
    let user = rustix::process::geteuid().as_raw();
    // The user id in the name keeps users of one machine apart. The node also checks the owner of the folder.
    runtime.unwrap_or_else(|| PathBuf::from(format!("/tmp/feedline-{user}"))).join("node.sock")
}

/// The cache folder. `None` if nothing is to be cached, or no folder is known.
pub(crate) fn cache_folder() -> Option<PathBuf> {
    choose_cache(std::env::var_os(CACHE_FOLDER), std::env::var_os(USER_CACHE), std::env::var_os(HOME))
}

fn choose_cache(chosen: Option<OsString>, users: Option<OsString>, home: Option<OsString>) -> Option<PathBuf> {
    if let Some(chosen) = chosen {
        // `absolute` fails for an empty path, which means that nothing is cached.
        return std::path::absolute(expanded(chosen, home.as_ref())).ok();
    }
    let absolute = |folder: OsString| Some(PathBuf::from(folder)).filter(|folder| folder.is_absolute());
    let users = users.and_then(absolute).or_else(|| Some(home.and_then(absolute)?.join(".cache")));
    Some(users?.join("feedline"))
}

/// Expands `~` at the start of a path to the home folder, also after `--option=`. Shells do not expand it in quotes and after `=`.
pub(crate) fn with_home(argument: OsString) -> OsString {
    expanded(argument, std::env::var_os(HOME).as_ref())
}

fn expanded(argument: OsString, home: Option<&OsString>) -> OsString {
    let Some(home) = home.filter(|home| !home.is_empty()) else { return argument };
    let bytes = argument.as_bytes();
    // Works on bytes, because paths need not be UTF-8.
    let option = bytes.starts_with(b"--").then(|| bytes.iter().position(|&byte| byte == b'=')).flatten();
    let (option, path) = bytes.split_at(option.map_or(0, |at| at + 1));
    match path.strip_prefix(b"~") {
        // `~user` is another user's home and is not expanded.
        Some(rest) if rest.is_empty() || rest.starts_with(b"/") => {
            OsString::from_vec([option, home.as_bytes(), rest].concat())
        }
        _ => argument,
    }
}

/// Where temporary folders go (`TMPDIR`).
pub(crate) fn temporary_folder() -> PathBuf {
    std::env::temp_dir()
}

/// Memory that this process may use, in bytes, if the system reports it.
pub(crate) fn memory_bytes() -> Option<u64> {
    let of_machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| total_of(&text));
    let of_group = fs::read_to_string("/sys/fs/cgroup/memory.max").ok().and_then(|text| text.trim().parse().ok());
    // A container may have less memory than its machine. Without a limit, `memory.max` is the word "max", which is no number.
    [of_machine, of_group].into_iter().flatten().min()
}

fn total_of(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    // "kB" in /proc/meminfo means 1024 bytes.
    Some(kilobytes * 1024)
}

/// Cores that this process may use.
pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_is_where_the_user_says_or_among_those_of_other_programs() {
        let check = |chosen: Option<&str>, users: Option<&str>, home: Option<&str>, expected: Option<&str>| {
            let found = choose_cache(chosen.map(Into::into), users.map(Into::into), home.map(Into::into));
            assert_eq!(found, expected.map(PathBuf::from));
        };
        check(Some("/c"), Some("/x"), Some("/h"), Some("/c"));
        check(Some(""), Some("/x"), Some("/h"), None);
        check(Some("~/c"), None, Some("/h"), Some("/h/c"));
        check(None, Some("/x"), Some("/h"), Some("/x/feedline"));
        check(None, Some("relative"), Some("/h"), Some("/h/.cache/feedline"));
        check(None, None, None, None);
    }

    #[test]
    fn a_tilde_at_the_beginning_of_a_path_is_the_home_folder() {
        let home = OsString::from("/h");
        for (argument, expected) in [
            ("~", "/h"),
            ("~/data", "/h/data"),
            ("--root=~/data", "/h/data"),
            ("~other/data", "~other/data"),
            ("a~/b", "a~/b"),
            ("x=~/b", "x=~/b"),
        ] {
            let found = expanded(argument.into(), Some(&home));
            let expected = if argument.starts_with("--") { format!("--root={expected}") } else { expected.to_owned() };
            assert_eq!(found, OsString::from(expected), "{argument}");
            assert_eq!(expanded(argument.into(), None), argument);
        }
    }

    #[test]
    fn the_total_is_read_in_bytes() {
        assert_eq!(total_of("MemTotal:       16384 kB\nMemFree: 1 kB\n"), Some(16384 * 1024));
        assert_eq!(total_of("nothing"), None);
    }
}
