//! Speed of the scan: tables and search together, per instruction set.
//!
//!     cargo run --release -p compcodes-benches --bin scan -- [n [M]] [key=value …]
//!
//! Data is seeded and random, or read from raw files of a directory `data=DIR` (for real codes, and to compare with
//! other libraries on the same ones): `codebooksM.f32` (M, 256, 128), `codesM.u8` (rows, M), `queries.f32` (rows, 128),
//! M standing for the number; codes are repeated until there are n. `words=16` takes as many codewords instead of 256. Further keys: `isa=`, `nq=`, `k=`, `threads=` run
//! one case instead of all. `allowed=0.5` filters at random, so that this share of the vectors passes; `scale=1` adds a
//! column of levels; `segments=` cuts the codes into as many.

use compcodes::codes::packed::{Layout, PackedCodes, PackedView, packed_bytes};
use compcodes::scan::tables::TableBuilder;
use compcodes::scan::{Adjust, Levels, Probes, Segment, search};
use compcodes::{Codebooks, isa::Isa};
use ndarray::{Array2, Array3, Axis, concatenate, s};
use std::time::{Duration, Instant};

const DIM: usize = 128;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let key = |name: &str| args.iter().find_map(|arg| arg.strip_prefix(name)?.strip_prefix('='));
    let number = |name: &str| key(name).map(|value| value.parse::<usize>().expect(name));
    let mut plain =
        args.iter().filter(|arg| !arg.contains('=')).map(|arg| arg.parse::<usize>().expect("a number"));
    let (n, m) = (plain.next().unwrap_or(1_000_000), plain.next().unwrap_or(8));

    let k = number("words").unwrap_or(256);
    let (codebooks, codes, queries) = match key("data") {
        Some(dir) => read(dir, m, k),
        None => random(n.min(1 << 20), m, k),
    };
    let mut next = generator();
    let mut levels = || -> Levels { std::array::from_fn(|_| (0.2 * next()).exp2()) };
    let scale = key("scale").map(|_| levels());
    let adjust = scale.as_ref().map_or(Adjust::None, Adjust::Scale);
    let n_segments = number("segments").unwrap_or(1);
    let mut packed = PackedCodes::with(Layout::smallest(m, k, adjust.n_columns())).unwrap();
    let levels =
        Array2::from_shape_simple_fn((codes.nrows(), adjust.n_columns()), || (256.0 * (next() + 0.5)) as u8);
    let codes = concatenate![Axis(1), codes, levels];
    while packed.len() < n {
        packed.extend(codes.slice(s![..codes.nrows().min(n - packed.len()), ..])).unwrap();
    }
    let allowed = key("allowed").map(|share| {
        let share = share.parse::<f32>().expect("a share") - 0.5;
        let words = (0..packed.view().n_blocks())
            .map(|_| (0..64).fold(0, |word, bit| word | u64::from(next() < share) << bit));
        words.collect::<Vec<u64>>()
    });
    let builder = TableBuilder::new(&codebooks);

    let all = [
        (1, 100, 1, n),
        (1, 1000, 1, n),
        (64, 100, 1, n),
        (64, 100, 2, n),
        (1, 100, 1, 1000),
        (1, 100, 1, 20_000),
    ];
    let one = number("nq").map(|nq| [(nq, number("k").unwrap_or(100), number("threads").unwrap_or(1), n)]);
    println!(
        "{:8} {:>9} {:>3} {:>3} {:>5} {:>7} {:>10} {:>10} {:>9}",
        "isa", "n", "M", "nq", "k", "threads", "min µs", "median µs", "10⁹ c/s"
    );
    for isa in Isa::ALL
        .into_iter()
        .filter(|isa| isa.is_available() && key("isa").is_none_or(|name| name == isa.name()))
    {
        for &(nq, k, threads, n) in one.as_ref().map_or(&all[..], |one| &one[..]) {
            let view = packed.view();
            let n = n.min(view.len());
            let bytes = &view.as_bytes()[..packed_bytes(n, view.n_lines())];
            let view = PackedView::with(bytes, n, view.layout()).unwrap();
            let allowed = allowed.as_ref().map(|words| &words[..view.n_blocks()]);
            let n_blocks = view.n_blocks();
            let cut = |i: usize| n_blocks * i / n_segments;
            let segments = (0..n_segments).map(|i| Segment {
                codes: view.slice(cut(i)..cut(i + 1)),
                adjust,
                allowed: allowed.map(|words| &words[cut(i)..cut(i + 1)]),
                first: cut(i) as u64 * 64,
            });
            let segments: Vec<_> = segments.collect();
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let mut batches = (0..queries.nrows() / nq).cycle();
            let (least, median) = pool.install(|| {
                time(|| {
                    let first = batches.next().expect("at least nq queries") * nq;
                    let tables = builder.tables(queries.slice(s![first..first + nq, ..]), isa).unwrap();
                    search(&segments, Probes::All, &tables, k, isa, &()).unwrap()
                })
            });
            let rate = (n * nq) as f64 / median.as_secs_f64() / 1e9;
            let [least, median] = [least, median].map(|time| time.as_secs_f64() * 1e6);
            println!(
                "{:8} {n:9} {m:3} {nq:3} {k:5} {threads:7} {least:10.1} {median:10.1} {rate:9.3}",
                isa.name()
            );
        }
    }
    let (_, median) = time(|| {
        packed.view().as_bytes().as_chunks().0.iter().fold(0, |sum, bytes| sum ^ u64::from_le_bytes(*bytes))
    });
    println!("reading the codes, nothing more: {:.3} · 10⁹ c/s", n as f64 / median.as_secs_f64() / 1e9);
}

/// Least and median time of a call: at least 9 calls and half a second.
fn time<T>(mut call: impl FnMut() -> T) -> (Duration, Duration) {
    let (start, mut times) = (Instant::now(), Vec::new());
    while times.len() < 9 || start.elapsed() < Duration::from_millis(500) {
        let start = Instant::now();
        std::hint::black_box(call());
        times.push(start.elapsed());
    }
    times.sort_unstable();
    (times[0], times[times.len() / 2])
}

fn read(dir: &str, m: usize, k: usize) -> (Codebooks, Array2<u8>, Array2<f32>) {
    let bytes =
        |name: String| std::fs::read(format!("{dir}/{name}")).unwrap_or_else(|e| panic!("{dir}/{name}: {e}"));
    let floats =
        |name| -> Vec<f32> { bytes(name).as_chunks().0.iter().map(|&b| f32::from_le_bytes(b)).collect() };
    let codes = bytes(format!("codes{m}.u8"));
    let queries = floats("queries.f32".into());
    (
        Codebooks::new(Array3::from_shape_vec((m, k, DIM), floats(format!("codebooks{m}.f32"))).unwrap())
            .unwrap(),
        Array2::from_shape_vec((codes.len() / m, m), codes).unwrap(),
        Array2::from_shape_vec((queries.len() / DIM, DIM), queries).unwrap(),
    )
}

/// Codebooks of falling size, as residual quantizers train them; all codes equally likely.
fn random(n: usize, m: usize, k: usize) -> (Codebooks, Array2<u8>, Array2<f32>) {
    let mut next = generator();
    let codebooks = Array3::from_shape_fn((m, k, DIM), |(m, _, _)| next() * 0.8f32.powi(m as i32));
    (
        Codebooks::new(codebooks).unwrap(),
        Array2::from_shape_simple_fn((n, m), || (k as f32 * (next() + 0.5)) as u8),
        Array2::from_shape_simple_fn((640, DIM), &mut next),
    )
}

/// Seeded numbers in −½ … ½.
fn generator() -> impl FnMut() -> f32 {
    let mut state = 1u64;
    move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1 << 24) as f32 - 0.5
    }
}
