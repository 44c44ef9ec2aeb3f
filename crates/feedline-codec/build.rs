//! Compiles the C shim against the vendored libjpeg-turbo, and detects whether that was built with SIMD.

use std::env;
use std::fs;
use std::path::PathBuf;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=src/shim.c");
    println!("cargo::rerun-if-changed=src/jpeg_memory.c");
    println!("cargo::rustc-check-cfg=cfg(jpeg_simd)");

    // turbojpeg-sys has `links = "turbojpeg"` and exports its include folders, separated by commas.
    let exported = env::var("DEP_TURBOJPEG_INCLUDE").expect("turbojpeg-sys exports where its headers are");
    let folders: Vec<PathBuf> = exported.split(',').map(PathBuf::from).collect();

    let config = folders.iter().find_map(|folder| fs::read_to_string(folder.join("jconfig.h")).ok());
    if config.is_some_and(|text| has_define(&text, "WITH_SIMD")) {
        println!("cargo::rustc-cfg=jpeg_simd");
    } else {
        println!(
            "cargo::warning=libjpeg-turbo was built without SIMD: same pixels, half the speed; install nasm and run `cargo clean -p turbojpeg-sys`"
        );
    }

    cc::Build::new().file("src/shim.c").includes(&folders).opt_level(2).warnings(true).compile("feedline_codec_shim");
}

fn has_define(text: &str, name: &str) -> bool {
    text.lines().any(|line| {
        let mut words = line.split_whitespace();
        words.next() == Some("#define") && words.next() == Some(name)
    })
}
