//! Temporary
use compcodes::{Codebooks, isa::Isa, packed::PackedCodes, scan::search, tables::TableBuilder};
use ndarray::{Array2, Array3};
use std::time::Instant;
fn read(p: &str) -> Vec<u8> {
    std::fs::read(p).unwrap()
}
fn f32s(p: &str) -> Vec<f32> {
    read(p).as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect()
}
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let m: usize = a[1].parse().unwrap();
    let pre = if m <= 16 && a.get(2).is_some_and(|v| v == "pq") { "pq" } else { "" };
    let d = "/tmp/scanbench";
    let cb = f32s(&format!("{d}/{pre}cb{m}.f32"));
    let codebooks = Codebooks::new(Array3::from_shape_vec((m, 256, 128), cb).unwrap()).unwrap();
    let codes = read(&format!("{d}/{pre}codes{m}.u8"));
    let n = codes.len() / m;
    let codes = Array2::from_shape_vec((n, m), codes).unwrap();
    let q = f32s(&format!("{d}/queries.f32"));
    let q = Array2::from_shape_vec((q.len() / 128, 128), q).unwrap();
    let mut packed = PackedCodes::pack(codes.view()).unwrap();
    let reps: usize = a.get(3).map_or(1, |v| v.parse().unwrap());
    for _ in 1..reps {
        packed.extend(codes.view()).unwrap();
    }
    let n = packed.len();
    let builder = TableBuilder::new(&codebooks);
    let pool = |t| rayon::ThreadPoolBuilder::new().num_threads(t).build().unwrap();
    let one = pool(1);
    let only = std::env::var("ONLY").unwrap_or_default();
    let (onq, ok): (usize, usize) = (
        std::env::var("NQ").map_or(0, |v| v.parse().unwrap()),
        std::env::var("KK").map_or(100, |v| v.parse().unwrap()),
    );
    for isa in Isa::ALL {
        if !only.is_empty() && isa.name() != only {
            continue;
        }
        let time = |pool: &rayon::ThreadPool, nq: usize, k: usize, n: usize| {
            let mut best = f64::MAX;
            let mut all = vec![];
            let start = Instant::now();
            let bytes = packed.view().as_bytes();
            let view =
                compcodes::packed::PackedView::new(&bytes[..compcodes::packed::packed_bytes(n, m)], n, m)
                    .unwrap();
            let mut at = 0;
            while start.elapsed().as_secs_f64() < 0.5 || all.len() < 7 {
                let qs = q.slice(ndarray::s![at..at + nq, ..]);
                at = (at + nq) % (1000 - nq);
                let t0 = Instant::now();
                pool.install(|| {
                    let t = builder.tables(qs, isa).unwrap();
                    search(view, &t, k, isa, &()).unwrap()
                });
                let t = t0.elapsed().as_secs_f64();
                best = best.min(t);
                all.push(t);
            }
            all.sort_by(f64::total_cmp);
            let med = all[all.len() / 2];
            println!(
                "{} M{m} n{n} nq{nq} k{k}: min {:.1} med {:.1} us; {:.3} G/s",
                isa.name(),
                best * 1e6,
                med * 1e6,
                n as f64 * nq as f64 / med / 1e9
            );
        };
        if onq > 0 {
            time(&one, onq, ok, n);
        } else if reps == 1 {
            time(&one, 1, 100, n);
            time(&one, 64, 100, n);
            time(&one, 1, 1000, n);
            time(&one, 64, 1000, n);
            time(&pool(2), 64, 100, n);
            time(&one, 1, 100, 1000);
            time(&one, 1, 100, 20000);
        } else {
            time(&one, 1, 100, n);
        }
    }
    // reading
    let mut v = vec![];
    for _ in 0..15 {
        let t0 = Instant::now();
        let s: u64 = packed
            .view()
            .as_bytes()
            .as_chunks::<8>()
            .0
            .iter()
            .map(|b| u64::from_le_bytes(*b))
            .fold(0, |a, b| a ^ b);
        std::hint::black_box(s);
        v.push(t0.elapsed().as_secs_f64());
    }
    v.sort_by(f64::total_cmp);
    println!("read: {:.3} G vectors/s, {:.1} GB/s", n as f64 / v[7] / 1e9, n as f64 * m as f64 / v[7] / 1e9);
}
