//! Writes the seeds of all targets as initial corpora for libFuzzer: `seeds FOLDER`.

use std::path::PathBuf;
use std::{env, fs, io};

use feedline_fuzz::TARGETS;

fn main() -> io::Result<()> {
    let folder =
        PathBuf::from(env::args_os().nth(1).ok_or_else(|| io::Error::other("give the folder for the corpora"))?);
    for target in TARGETS {
        let corpus = folder.join(target.name);
        fs::create_dir_all(&corpus)?;
        for (number, seed) in (target.seeds)().iter().enumerate() {
            fs::write(corpus.join(format!("seed-{number}")), seed)?;
        }
    }
    Ok(())
}
