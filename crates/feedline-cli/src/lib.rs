//! The `feedline` command.
