//! Writes the plots of a command: as a page together with its report, or alone.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use super::{Plot, escaped, svg};

const STYLE: &str = ":root{color-scheme:light dark}body{font-family:sans-serif;max-width:60rem;margin:1rem auto;padding:0 1rem}\
     svg{width:100%;height:auto}pre{overflow-x:auto}";

/// The plots of a command, and its report.
#[derive(Clone, Debug)]
pub(crate) struct Drawing {
    /// The command.
    pub title: &'static str,
    /// The report as text.
    pub report: String,
    /// The plots, from top to bottom.
    pub plots: Vec<Plot>,
}

impl Drawing {
    /// Writes the requested files.
    pub(crate) fn write(&self, html: Option<&PathBuf>, svg: Option<&PathBuf>) -> Result<()> {
        let write = |path: &Path, text: String| fs::write(path, text).with_context(|| format!("cannot write {path:?}"));
        if let Some(path) = svg {
            write(path, svg::file(&self.plots))?;
        }
        if let Some(path) = html {
            write(path, self.page())?;
        }
        Ok(())
    }

    /// A self-contained page.
    fn page(&self) -> String {
        let Self { title, report, plots } = self;
        format!(
            "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\">\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"><title>{title}</title>\
             <style>{STYLE}</style><h1>{title}</h1><pre>{}</pre>{}</html>\n",
            escaped(report),
            plots.iter().map(Plot::svg).collect::<String>()
        )
    }
}
