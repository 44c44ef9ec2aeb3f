//! Measures the seek index on real files: time and bytes saved, and whether every crop equals that of a full decode.
//!
//! `cargo run --release -p feedline-codec --example seek_speed -- FOLDER [CROPS] [--json]`
//!
//! Crops are drawn as `RandomResizedCrop` draws them. Ends with an error if any pixel differs.

mod crops;

use std::cell::OnceCell;
use std::error::Error;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crops::Random;
use feedline_codec::{
    DecodeOptions, Encoded, Mode, Picture, Rect, Scale, SeekIndex, decode_into, decode_part_into, read_header,
};

fn main() -> Result<(), Box<dyn Error>> {
    let is_json = std::env::args().any(|argument| argument == "--json");
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--json");
    let folder = PathBuf::from(arguments.next().ok_or("usage: seek_speed FOLDER [CROPS]")?);
    let crops: usize = arguments.next().map_or(Ok(3), |text| text.parse())?;
    let mut files = Vec::new();
    for entry in fs::read_dir(&folder)? {
        files.push(fs::read(entry?.path())?);
    }
    files.retain(|bytes| read_header(bytes).is_ok());
    let options = DecodeOptions { mode: Mode::Rgb, exif: true, max_pixels: 1 << 28, fast: None, cancel: &|| false };
    let fast = DecodeOptions { fast: Some(Scale::Half), ..options };
    let mut sum = Sum::default();
    let mut random = Random(1);
    let (mut whole, mut part, mut halved) = (Picture::default(), Picture::default(), Picture::default());
    for file in &files {
        let start = Instant::now();
        decode_into(file, &options, &mut whole)?;
        sum.full += start.elapsed();
        let start = Instant::now();
        let Ok(index) = SeekIndex::build(file) else {
            sum.refused += 1;
            for _ in 0..crops {
                let crop = random.crop(whole.width, whole.height);
                let start = Instant::now();
                let found = decode_part_into(Encoded::Whole(file), crop, &options, &mut part)?;
                sum.region += start.elapsed();
                sum.regions += 1;
                sum.check(&whole, &part, found, crop);
            }
            continue;
        };
        sum.build += start.elapsed();
        let bytes = index.to_bytes();
        (sum.files, sum.file_bytes, sum.index_bytes) =
            (sum.files + 1, sum.file_bytes + file.len(), sum.index_bytes + bytes.len());
        let start = Instant::now();
        let index = SeekIndex::from_bytes(&bytes)?;
        sum.read += start.elapsed();
        for _ in 0..crops {
            let crop = random.crop(whole.width, whole.height);
            let start = Instant::now();
            let encoded = Encoded::Indexed { bytes: file, offset: 0, index: &index };
            let found = decode_part_into(encoded, crop, &options, &mut part)?;
            sum.indexed += start.elapsed();
            sum.check(&whole, &part, found, crop);
            let start = Instant::now();
            let found = decode_part_into(Encoded::Whole(file), crop, &options, &mut part)?;
            sum.region += start.elapsed();
            sum.regions += 1;
            sum.check(&whole, &part, found, crop);
            let start = Instant::now();
            let built = OnceCell::new();
            let unindexed = Encoded::Unindexed { bytes: file, index: &built };
            let found = decode_part_into(unindexed, crop, &options, &mut part)?;
            sum.first_pass += start.elapsed();
            sum.check(&whole, &part, found, crop);
            sum.different += usize::from(built.get() != Some(&Ok(index.clone())));
            let range = index.bytes_for(crop, &options)?;
            sum.range_bytes += (range.end - range.start) as usize;
            let half = Rect {
                left: crop.left / 2,
                top: crop.top / 2,
                width: crop.width.div_ceil(2),
                height: crop.height.div_ceil(2),
            };
            let start = Instant::now();
            decode_part_into(encoded, half, &fast, &mut halved)?;
            sum.fast += start.elapsed();
            sum.crops += 1;
        }
    }
    if is_json {
        sum.print_json();
    } else {
        sum.print();
    }
    if sum.different > 0 { Err(format!("{} crops differ", sum.different).into()) } else { Ok(()) }
}

#[derive(Default)]
struct Sum {
    files: usize,
    refused: usize,
    crops: usize,
    different: usize,
    file_bytes: usize,
    index_bytes: usize,
    range_bytes: usize,
    full: Duration,
    build: Duration,
    read: Duration,
    indexed: Duration,
    region: Duration,
    /// Crops by region. The other crops are of files with an index.
    regions: usize,
    /// The crop, and the index in the same pass.
    first_pass: Duration,
    fast: Duration,
}

impl Sum {
    fn check(&mut self, whole: &Picture, part: &Picture, found: Rect, crop: Rect) {
        let expected = whole.view().crop(crop.left, crop.top, crop.width, crop.height);
        let crop = part.view().crop(crop.left - found.left, crop.top - found.top, crop.width, crop.height);
        self.different += usize::from(!expected.rows().eq(crop.rows()));
    }

    fn print_json(&self) {
        let Self { files, refused, crops, different, .. } = self;
        let per = |time: Duration, count: usize| time.as_secs_f64() * 1e3 / count as f64;
        println!(
            "{{\"pictures\": {files}, \"without_index\": {refused}, \"crops\": {crops}, \"crops_that_differ\": {different}, \
             \"full_decode_ms\": {:.3}, \"index_made_ms\": {:.3}, \"with_index_ms\": {:.3}, \"region_ms\": {:.3}, \"first_pass_ms\": {:.3}}}",
            per(self.full, files + refused),
            per(self.build, *files),
            per(self.indexed, *crops),
            per(self.region, self.regions),
            per(self.first_pass, *crops),
        );
    }

    fn print(&self) {
        let (files, crops) = (self.files as f64, self.crops as f64);
        let milliseconds = |time: Duration, count: f64| time.as_secs_f64() * 1e3 / count;
        let full = milliseconds(self.full, files + self.refused as f64);
        println!("{} files, {} without an index, {} crops", self.files, self.refused, self.crops);
        println!("full decode          {full:.3} ms");
        println!(
            "index built          {:.3} ms, read {:.3} ms",
            milliseconds(self.build, files),
            milliseconds(self.read, files)
        );
        println!("index size           {:.2} % of the files", 100.0 * self.index_bytes as f64 / self.file_bytes as f64);
        for (name, time, crops) in [
            ("with index", self.indexed, crops),
            ("region", self.region, self.regions as f64),
            ("crop and index", self.first_pass, crops),
            ("half size, index", self.fast, crops),
        ] {
            let time = milliseconds(time, crops);
            println!("{name:20} {time:.3} ms, {:.2}x", full / time);
        }
        println!(
            "one range            {:.2}x fewer bytes",
            self.file_bytes as f64 / files / (self.range_bytes as f64 / crops)
        );
        println!("crops that differ    {}", self.different);
    }
}
