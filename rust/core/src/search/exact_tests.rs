use super::exact::search;
use crate::vectors::metric::Metric;
use ndarray::Array2;

#[test]
fn scores_are_the_metrics() {
    let x = Array2::from_shape_fn((300, 7), |(i, j)| ((i * 7919 + j * 104_729) % 23) as f32 - 11.0);
    let queries = x.slice(ndarray::s![..60;3, ..]);
    for metric in Metric::ALL {
        let hits = search(&x.view(), &queries, 300, metric, &()).unwrap();
        for (q, query) in queries.outer_iter().enumerate() {
            for (&row, &score) in hits.positions.row(q).iter().zip(hits.scores.row(q)) {
                let want = metric.score(query.as_slice().unwrap(), x.row(row as usize).as_slice().unwrap());
                assert!((f64::from(score) - want).abs() < 1e-3, "{metric:?}: {score}, not {want}");
            }
        }
    }
}

/// The k best of all rows by [`Metric::score`].
fn sorted(x: &Array2<f32>, query: &[f32], metric: Metric) -> Vec<(f64, i64)> {
    let score = |row: usize| metric.score(query, x.row(row).as_slice().unwrap());
    let mut all: Vec<(f64, i64)> = (0..x.nrows()).map(|row| (score(row), row as i64)).collect();
    all.sort_by(|a, b| b.0.partial_cmp(&a.0).unwrap().then(a.1.cmp(&b.1)));
    all
}

fn check(x: &Array2<f32>, queries: &Array2<f32>, what: &str) {
    for metric in Metric::ALL {
        for k in [1, 10, 100] {
            let hits = search(&x.view(), &queries.view(), k, metric, &()).unwrap();
            for (q, query) in queries.outer_iter().enumerate() {
                let want = sorted(x, query.as_slice().unwrap(), metric);
                for (i, &(score, row)) in want.iter().take(k).enumerate() {
                    let found = (hits.scores[[q, i]], hits.positions[[q, i]]);
                    assert_eq!(
                        found,
                        (score as f32 + 0.0, row),
                        "{what} {metric:?} k {k} query {q} rank {i}"
                    );
                }
            }
        }
    }
}

/// Numbers with a nearly normal distribution.
fn noise(n: usize, d: usize, seed: u64) -> Array2<f32> {
    use rand::{RngExt, SeedableRng};
    let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(seed);
    Array2::from_shape_fn((n, d), |_| (0..6).map(|_| rng.random::<f32>() - 0.5).sum::<f32>() * 1.4)
}

#[test]
fn is_exact_for_all_that_f32_can_hold() {
    let (x, q) = (noise(3000, 24, 1), noise(7, 24, 2));
    for shift in [0.0, 1.0, 100.0, 1e3, 1e5, 1e9] {
        check(&(&x + shift), &(&q + shift), &format!("shifted by {shift}"));
    }
    for size in [1e-44, 1e-30, 1e-19, 1e19, 1e30, 5e37] {
        check(&(&x * size), &(&q * size), &format!("times {size}"));
        check(&(&x * size), &q, &format!("rows times {size}"));
        check(&x, &(&q * size), &format!("queries times {size}"));
    }
    let spread = |mut x: Array2<f32>, by: f32| {
        for (i, mut row) in x.outer_iter_mut().enumerate() {
            row *= 10f32.powf((i * 7919 % 997) as f32 / 996.0 * 2.0 * by - by);
        }
        x
    };
    for by in [1.0, 18.0, 36.0] {
        check(&spread(x.clone(), by), &q, &format!("lengths of 1e±{by}"));
        check(&spread(x.clone(), by), &spread(q.clone(), by), &format!("all lengths of 1e±{by}"));
    }
    let equal = Array2::from_shape_fn((3000, 24), |(i, j)| x[[i % 3, j]]);
    check(&equal, &q, "three distinct rows");
    check(&Array2::zeros((3000, 24)), &q, "zeros");
    check(&x, &Array2::zeros((2, 24)), "zero queries");
    // One row near each end of the range: their difference is beyond f32.
    let mut ends = x.clone();
    ends.row_mut(5).fill(3e38);
    ends.row_mut(6).fill(-3e38);
    check(&ends, &ends.slice(ndarray::s![4..8, ..]).to_owned(), "ends");
    check(&(ends.mapv(|v| if v > 0.0 { 3e38 } else { -3e38 })), &q, "only ends");
}

#[test]
fn equals_re_ranking_of_everything() {
    use crate::search::rerank::rerank;
    let (x, q) = (noise(500, 33, 3) + 300.0, noise(5, 33, 4) + 300.0);
    let all = Array2::from_shape_fn((5, 500), |(_, i)| i as i64);
    for metric in Metric::ALL {
        let hits = search(&x.view(), &q.view(), 20, metric, &()).unwrap();
        let again = rerank(q.view(), &x.view(), all.view(), 20, metric, &()).unwrap();
        assert_eq!((hits.positions, hits.scores), (again.positions, again.scores));
    }
}

#[test]
fn refuses_what_has_no_dimensions() {
    let none = Array2::<f32>::zeros((3, 0));
    assert!(search(&none.view(), &none.view(), 1, Metric::Euclidean, &()).is_err());
}

#[test]
fn equals_a_full_sort() {
    let x = Array2::from_shape_fn((3000, 5), |(i, j)| ((i * 7919 + j * 104_729) % 23) as i8 - 11);
    let queries = Array2::from_shape_fn((50, 5), |(i, j)| ((i * 31 + j * 17) % 13) as f32 - 6.0);
    let hits = search(&x.view(), &queries.view(), 40, Metric::InnerProduct, &()).unwrap();
    let products = queries.dot(&x.mapv(f32::from).t());
    for q in 0..50 {
        let mut order: Vec<usize> = (0..3000).collect();
        order.sort_by(|&a, &b| products[[q, b]].total_cmp(&products[[q, a]]).then(a.cmp(&b)));
        for (i, &row) in order[..40].iter().enumerate() {
            assert_eq!((hits.positions[[q, i]], hits.scores[[q, i]]), (row as i64, products[[q, row]]));
        }
    }
}
