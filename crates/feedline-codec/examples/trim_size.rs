//! Measures how many bytes of real files remain after trimming, and the time it takes.
//!
//! `cargo run --release -p feedline-codec --example trim_size -- FOLDER [CROPS] [--fast] [--json]`
//!
//! Crops are drawn as `RandomResizedCrop` draws them and resized to 224 x 224; with `--fast` they are decoded at the
//! smallest scale that is not below that size. Progressive files are read completely to be trimmed. Other files without an index, and crops that need more bytes than the file has, count as whole files.
//! Times are of the CPU, the best of three. Ends with an error if any pixel differs from that of a decode of the file.

mod crops;

use std::error::Error;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use crops::Random;
use feedline_codec::{
    DecodeOptions, Encoded, Format, Mode, Picture, Rect, Scale, SeekIndex, Trimmed, decode_part_into, read_header,
    trim_progressive,
};
use rustix::time::{ClockId, clock_gettime};

const SIDE: u32 = 224;

fn main() -> Result<(), Box<dyn Error>> {
    let flag = |name: &str| std::env::args().any(|argument| argument == name);
    let mut arguments = std::env::args().skip(1).filter(|argument| !argument.starts_with("--"));
    let folder = PathBuf::from(arguments.next().ok_or("usage: trim_size FOLDER [CROPS] [--fast] [--json]")?);
    let crops: usize = arguments.next().map_or(Ok(10), |text| text.parse())?;
    let mut paths: Vec<PathBuf> =
        fs::read_dir(&folder)?.map(|entry| Ok(entry?.path())).collect::<Result<_, Box<dyn Error>>>()?;
    paths.sort();
    let mut sum = Sum::default();
    let mut random = Random(1);
    for path in paths {
        let file = fs::read(path)?;
        let Ok(header) = read_header(&file) else { continue };
        let index = SeekIndex::build(&file);
        (sum.files, sum.without_index) = (sum.files + 1, sum.without_index + usize::from(index.is_err()));
        for _ in 0..crops {
            let (width, height) = header.orientation.seen_size(header.width, header.height);
            let crop = random.crop(width, height);
            let fast = flag("--fast").then(|| scale_for(crop));
            let options = DecodeOptions { mode: Mode::Rgb, exif: true, max_pixels: 1 << 28, fast, cancel: &|| false };
            sum.whole_bytes += file.len();
            match &index {
                Ok(index) => sum.add(&file, Some(index), shrunk(crop, fast.unwrap_or_default().divisor()), &options)?,
                Err(_) if header.format == Format::Jpeg && header.needs_whole => {
                    sum.add(&file, None, shrunk(crop, fast.unwrap_or_default().divisor()), &options)?;
                }
                Err(_) => sum.sent_bytes += file.len(),
            }
        }
    }
    sum.print(flag("--json"));
    if sum.different > 0 { Err(format!("{} crops differ", sum.different).into()) } else { Ok(()) }
}

/// Does the work three times, and adds the shortest time.
fn best<T, E>(sum: &mut Duration, mut work: impl FnMut() -> Result<T, E>) -> Result<T, E> {
    let mut shortest = Duration::MAX;
    for _ in 0..2 {
        let start = cpu_time();
        work()?;
        shortest = shortest.min(cpu_time().saturating_sub(start));
    }
    let start = cpu_time();
    let result = work();
    *sum += shortest.min(cpu_time().saturating_sub(start));
    result
}

/// CPU time of this thread.
fn cpu_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).expect("time does not run backwards")
}

fn scale_for(crop: Rect) -> Scale {
    let side = crop.width.min(crop.height);
    let scales = [Scale::Eighth, Scale::Quarter, Scale::Half];
    scales.into_iter().find(|scale| side >= SIDE * scale.divisor()).unwrap_or_default()
}

fn shrunk(crop: Rect, divisor: u32) -> Rect {
    let (left, top) = (crop.left / divisor, crop.top / divisor);
    let (right, bottom) = (crop.right().div_ceil(divisor), crop.bottom().div_ceil(divisor));
    Rect { left, top, width: right - left, height: bottom - top }
}

#[derive(Default)]
struct Sum {
    files: usize,
    without_index: usize,
    crops: usize,
    smaller: usize,
    different: usize,
    whole_bytes: usize,
    sent_bytes: usize,
    trim: Duration,
    trimmed: Duration,
    indexed: Duration,
    pictures: [Picture; 2],
}

impl Sum {
    fn add(
        &mut self,
        file: &[u8],
        index: Option<&SeekIndex>,
        crop: Rect,
        options: &DecodeOptions<'_>,
    ) -> Result<(), Box<dyn Error>> {
        let [one, other] = &mut self.pictures;
        let bytes = best(&mut self.trim, || match index {
            Some(index) => index.trim(crop, options, file, 0).map(Some),
            None => trim_progressive(file, crop, options),
        })?;
        let Some(bytes) = bytes else {
            self.sent_bytes += file.len();
            return Ok(());
        };
        self.crops += 1;
        self.smaller += usize::from(!matches!(options.fast, None | Some(Scale::Full)));
        self.sent_bytes += bytes.len().min(file.len());
        let found = best(&mut self.trimmed, || {
            decode_part_into(Encoded::Trimmed(&Trimmed::read(&bytes)?), crop, options, one)
        })?;
        let encoded = match index {
            Some(index) => Encoded::Indexed { bytes: file, offset: 0, index },
            None => Encoded::Whole(file),
        };
        let expected = best(&mut self.indexed, || decode_part_into(encoded, crop, options, other))?;
        let view = |picture: &Picture, at: Rect| -> Vec<u8> {
            let view = picture.view().crop(crop.left - at.left, crop.top - at.top, crop.width, crop.height);
            view.rows().flatten().copied().collect()
        };
        self.different += usize::from(view(one, found) != view(other, expected));
        Ok(())
    }

    fn print(&self, is_json: bool) {
        let Self { files, without_index, crops, smaller, different, .. } = self;
        let fewer = self.whole_bytes as f64 / self.sent_bytes as f64;
        let ms = |time: Duration| time.as_secs_f64() * 1e3 / *crops as f64;
        let (trim, trimmed, indexed) = (ms(self.trim), ms(self.trimmed), ms(self.indexed));
        if is_json {
            println!(
                "{{\"pictures\": {files}, \"without_index\": {without_index}, \"crops\": {crops}, \"at_a_smaller_scale\": {smaller}, \
                 \"crops_that_differ\": {different}, \"fewer_bytes\": {fewer:.3}, \"trim_ms\": {trim:.3}, \
                 \"decode_trimmed_ms\": {trimmed:.3}, \"decode_by_index_ms\": {indexed:.3}}}"
            );
            return;
        }
        println!(
            "{files} files, {without_index} without an index, {crops} crops trimmed, {smaller} at a smaller scale"
        );
        println!("bytes                {fewer:.3}x fewer");
        println!("trim                 {trim:.3} ms");
        println!("decode trimmed       {trimmed:.3} ms");
        println!("decode of the file   {indexed:.3} ms");
        println!("crops that differ    {different}");
    }
}
