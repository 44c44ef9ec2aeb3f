//! Measures decoding, resizing and normalising, in microseconds per picture on one core.
//!
//! `cargo run --release -p feedline-codec --example decode_speed -- FOLDER [ROUNDS] [--json]`
//!
//! With `--json`, each round is one line of JSON. It only decodes, so that nothing else fills the caches between two pictures.

use std::error::Error;
use std::fs;
use std::hint::black_box;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use feedline_codec::{
    Affine, DecodeOptions, Filter, Mode, Picture, Resampler, Simd, View, decode_into, flip_horizontal, has_jpeg_simd,
    interleaved_f32, planes_bf16, planes_f16, planes_f32, planes_u8, read_header,
};

const SIDE: u32 = 224;
const OPTIONS: DecodeOptions<'static> =
    DecodeOptions { mode: Mode::Rgb, exif: true, max_pixels: 1 << 28, fast: None, cancel: &|| false };

fn main() -> Result<(), Box<dyn Error>> {
    let (switches, arguments): (Vec<_>, Vec<_>) = std::env::args().skip(1).partition(|text| text == "--json");
    let mut arguments = arguments.into_iter();
    let folder = PathBuf::from(arguments.next().ok_or("usage: decode_speed FOLDER [ROUNDS] [--json]")?);
    let rounds: usize = arguments.next().map_or(Ok(3), |text| text.parse())?;
    let mut files = Vec::new();
    read_below(&folder, &mut files)?;
    files.retain(|bytes| read_header(bytes).is_ok());
    if files.is_empty() {
        return Err(format!("no pictures in {}", folder.display()).into());
    }
    if !switches.is_empty() {
        return (0..rounds).try_for_each(|_| run_for_programs(&files));
    }
    let bytes: usize = files.iter().map(Vec::len).sum();
    println!("{} pictures, {} KB on average, JPEG SIMD: {}", files.len(), bytes / files.len() / 1000, has_jpeg_simd());
    for _ in 0..rounds {
        run(&files)?;
    }
    Ok(())
}

fn read_below(folder: &Path, files: &mut Vec<Vec<u8>>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            read_below(&path, files)?;
        } else {
            files.push(fs::read(path)?);
        }
    }
    Ok(())
}

fn run_for_programs(files: &[Vec<u8>]) -> Result<(), Box<dyn Error>> {
    let mut picture = Picture::default();
    let (start, cpu_start) = (Instant::now(), thread_cpu()?);
    for bytes in files {
        decode_into(black_box(bytes), &OPTIONS, &mut picture)?;
    }
    let (wall, cpu) = (start.elapsed(), thread_cpu()?.saturating_sub(cpu_start));
    let [wall, cpu] = [wall, cpu].map(|time| time.as_secs_f64() * 1e6 / files.len() as f64);
    println!("{{\"pictures\": {}, \"wall_microseconds\": {wall:.1}, \"cpu_microseconds\": {cpu:.1}}}", files.len());
    Ok(())
}

/// CPU time of this thread. Other programs on the machine do not add to it.
fn thread_cpu() -> Result<Duration, Box<dyn Error>> {
    let text = fs::read_to_string("/proc/thread-self/schedstat")?;
    let nanoseconds = text.split_whitespace().next().ok_or("the system does not report CPU time per thread")?;
    Ok(Duration::from_nanos(nanoseconds.parse()?))
}

fn run(files: &[Vec<u8>]) -> Result<(), Box<dyn Error>> {
    let affine = Affine { scale: [1.0 / 0.229, 1.0 / 0.224, 1.0 / 0.225], bias: [-2.118, -2.036, -1.804] };
    let simd = Simd::detect();
    let mut picture = Picture::default();
    let mut resampler = Resampler::new();
    let pixels = (SIDE * SIDE * 3) as usize;
    let mut small = vec![0; pixels];
    let mut numbers = vec![0; pixels * 4];
    let mut clock = Clock::default();
    for bytes in files {
        clock.time("header", || read_header(black_box(bytes)).map(black_box))?;
        clock.time("decode", || decode_into(bytes, &OPTIONS, &mut picture))?;
        let crop = centre(&picture);
        clock.time("bilinear", || resampler.resize(crop, &mut small, SIDE, SIDE, Filter::Bilinear))?;
        clock.time("bicubic", || resampler.resize(crop, &mut small, SIDE, SIDE, Filter::Bicubic))?;
        let view = View::packed(&small, SIDE, SIDE, 3);
        clock.time("f32 planes", || planes_f32(view, Some(&affine), simd, black_box(&mut numbers)));
        clock.time("f32 scalar", || planes_f32(view, Some(&affine), Simd::none(), black_box(&mut numbers)));
        clock.time("f32 rows", || interleaved_f32(view, Some(&affine), simd, black_box(&mut numbers)));
        clock.time("f16 planes", || planes_f16(view, Some(&affine), simd, black_box(&mut numbers[..pixels * 2])));
        clock.time("bf16 planes", || planes_bf16(view, Some(&affine), simd, black_box(&mut numbers[..pixels * 2])));
        clock.time("u8 planes", || planes_u8(view, simd, black_box(&mut numbers[..pixels])));
        clock.time("flip", || flip_horizontal(black_box(&mut small), SIDE, SIDE, 3));
    }
    clock.print(files.len());
    Ok(())
}

/// The middle of a picture, about as large as the crops in training.
fn centre(picture: &Picture) -> View<'_> {
    let (width, height) = (picture.width * 2 / 3, picture.height * 2 / 3);
    picture.view().crop(picture.width / 6, picture.height / 6, width.max(1), height.max(1))
}

/// Sums of time by name, in the order of first use.
#[derive(Default)]
struct Clock(Vec<(&'static str, Duration)>);

impl Clock {
    fn time<T>(&mut self, name: &'static str, work: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let result = work();
        let took = start.elapsed();
        match self.0.iter_mut().find(|(known, _)| *known == name) {
            Some((_, sum)) => *sum += took,
            None => self.0.push((name, took)),
        }
        result
    }

    fn print(&self, count: usize) {
        let columns = self.0.iter().map(|(name, sum)| format!("{name} {:.1}", sum.as_secs_f64() * 1e6 / count as f64));
        println!("us: {}", columns.collect::<Vec<_>>().join(", "));
        if let Some((_, sum)) = self.0.iter().find(|(name, _)| *name == "decode") {
            println!("    {:.0} pictures decoded per second", count as f64 / sum.as_secs_f64());
        }
    }
}
