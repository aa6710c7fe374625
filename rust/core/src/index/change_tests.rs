//! Changes: all or nothing, ids that are never reused, and errors that name the row.

use super::tests::{codes, model};
use super::*;
use crate::Metric;
use ndarray::{Axis, array};
use std::sync::atomic::{AtomicU64, Ordering};

fn all_settings() -> [Settings; 6] {
    let of = |metric| Settings { metric, ..Settings::default() };
    [
        of(Metric::InnerProduct),
        of(Metric::Cosine),
        of(Metric::Euclidean),
        Settings { exact_norms: false, ..of(Metric::Euclidean) },
        Settings { scale: true, ..Settings::default() },
        Settings { residuals: true, ..Settings::default() },
    ]
}

fn vectors(n: usize) -> Array2<f32> {
    Array2::from_shape_fn((n, 4), |(i, j)| ((i * 7 + j * 3 + i * j) % 23) as f32 * 0.1 - 1.1)
}

/// The observable state of an index.
type Looks = (Array2<u8>, Option<Vec<i64>>, Vec<f32>, u64, Order, crate::scan::Hits);
type Operation<'a> = &'a dyn Fn(&mut Index, &dyn Monitor) -> Result<()>;

fn look(index: &Index) -> Looks {
    let query = array![[1.0f32, -0.5, 2.0, 0.25]];
    let hits = index.search(query.view(), index.len() + 1, None, &()).unwrap();
    let ids = index.ids().map(Cow::into_owned);
    (index.codes(), ids, index.numbers().to_vec(), index.next_id(), index.order(), hits)
}

#[test]
fn what_is_cancelled_at_any_report_has_not_happened() {
    for settings in all_settings() {
        let mut index = Index::with(model(), settings).unwrap();
        index.add(&vectors(90).view(), None, &()).unwrap();
        index.remove(&[4, 80], &()).unwrap();
        let mut other = Index::with(model(), settings).unwrap();
        other.add(&(100.0 * vectors(70)).view(), Some(&(500..570).collect::<Vec<_>>()), &()).unwrap();
        let x = 30.0 * vectors(40);
        let operations: [Operation<'_>; 4] = [
            &|index, monitor| index.add(&x.view(), None, monitor),
            &|index, monitor| index.merge(&other, monitor),
            &|index, monitor| index.remove(&[5, 7, 60], monitor).map(drop),
            &|index, monitor| index.update(&x.view(), &(10..50).collect::<Vec<_>>(), monitor),
        ];
        for (which, operation) in operations.iter().enumerate() {
            let before = look(&index);
            let (mut changed, reports) = (index.clone(), AtomicU64::new(0));
            operation(&mut changed, &|_, _| reports.fetch_add(1, Ordering::Relaxed) < u64::MAX).unwrap();
            assert_ne!(look(&changed), before, "{settings:?} {which}");
            let n = reports.into_inner();
            assert!(n >= 2, "{settings:?} {which}: {n} reports");
            for stop in 0..n {
                let (mut same, reports) = (index.clone(), AtomicU64::new(0));
                let monitor = |_, _| reports.fetch_add(1, Ordering::Relaxed) < stop;
                let stopped = operation(&mut same, &monitor);
                assert!(matches!(stopped, Err(crate::Error::Cancelled)), "{settings:?} {which} {stop}");
                assert_eq!(look(&same), before, "{settings:?} {which} {stop}");
            }
        }
    }
}

#[test]
fn an_update_leaves_what_adding_would_have_made() {
    for settings in all_settings().into_iter().filter(|settings| settings.metric != Metric::Cosine) {
        let (x, late) = (vectors(150), 3.0 * vectors(30));
        let ids: Vec<i64> = (0..30).map(|i| (i * 37 + 5) % 150).collect();
        let mut index = Index::with(model(), settings).unwrap();
        index.add(&x.view(), None, &()).unwrap();
        index.update(&late.view(), &ids, &()).unwrap();
        assert_eq!((index.ids(), index.order()), (None, Order::Added));
        let mut replaced = x;
        ids.iter().zip(late.outer_iter()).for_each(|(&id, row)| replaced.row_mut(id as usize).assign(&row));
        let mut plain = Index::with(model(), settings).unwrap();
        plain.add(&replaced.view(), None, &()).unwrap();
        assert_eq!((index.codes(), index.numbers()), (plain.codes(), plain.numbers()));
        if settings.exact_norms {
            let hits = |index: &Index| index.search(late.view(), 20, None, &()).unwrap();
            assert_eq!(hits(&index), hits(&plain), "{settings:?}");
        }
        for (wrong, what) in [
            (vec![3, 150], "no id 150"),
            (vec![-1, 999], "no id -1, nor 1 other"),
            (vec![4, 4], "4 twice"),
            (vec![1], "1 entries"),
        ] {
            let before = look(&index);
            let error = index.update(&late.slice(s![..2, ..]), &wrong, &()).unwrap_err().to_string();
            assert!(error.contains(what), "{error}");
            assert_eq!(look(&index), before);
        }
    }
}

#[test]
fn a_change_is_for_the_index_that_it_was_prepared_for() {
    let mut index = Index::new(model());
    let (a, b) = (codes(5), codes(9));
    let first = index.prepare_add_codes(a.view(), None, None, &()).unwrap();
    let late = index.prepare_add_codes(b.view(), None, None, &()).unwrap();
    assert_eq!(index.apply(first).unwrap(), 5);
    assert!(index.apply(late).is_err());
    assert_eq!(index.len(), 5);
}

#[test]
fn ids_are_never_chosen_again() {
    let add = |index: &mut Index, n| index.add_codes(codes(n).view(), None, None, &()).unwrap();
    let mut index = Index::new(model());
    add(&mut index, 4);
    index.remove(&[3], &()).unwrap();
    add(&mut index, 1);
    assert_eq!(index.ids().as_deref(), Some(&[0, 1, 2, 4][..]));
    index.clear().unwrap();
    assert_eq!((index.len(), index.next_id()), (0, 5));
    add(&mut index, 2);
    assert_eq!(index.ids().as_deref(), Some(&[5, 6][..]));
    index.add_codes(codes(1).view(), Some(&[100]), None, &()).unwrap();
    index.remove(&[100], &()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("index.cc");
    index.save(&path).unwrap();
    let mut index = Index::load(&path).unwrap();
    assert_eq!((index.next_id(), index.order()), (101, Order::Removed));
    add(&mut index, 1);
    assert_eq!(index.ids().as_deref(), Some(&[5, 6, 101][..]));
    let mut other = Index::new(model());
    add(&mut other, 3);
    other.merge(&index, &()).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!((other.ids().as_deref(), other.next_id()), (Some(&[0, 1, 2, 5, 6, 101][..]), 102));
    let mut last = Index::new(model());
    last.add_codes(codes(1).view(), Some(&[i64::MAX]), None, &()).unwrap();
    assert!(last.add_codes(codes(1).view(), None, None, &()).is_err());
    assert_eq!((last.len(), last.contains(i64::MAX), last.contains(0)), (1, true, false));
}

#[test]
fn rows_that_may_be_those_of_other_vectors_are_refused() {
    let x = vectors(60);
    let mut index = Index::new(model());
    index.add(&x.view(), None, &()).unwrap();
    let query = array![[1.0f32, -0.5, 2.0, 0.25]];
    let rerank =
        |index: &Index, x: &Array2<f32>| index.search_rerank(query.view(), 60, (&x.view(), 60), None, &());
    let all = rerank(&index, &x).unwrap();
    index.remove(&[7, 8], &()).unwrap();
    let kept: Vec<usize> = (0..60).filter(|id| ![7, 8].contains(id)).collect();
    rerank(&index, &x.select(Axis(0), &kept)).unwrap();
    index.add(&x.slice(s![7..9, ..]), Some(&[7, 8]), &()).unwrap();
    assert!(rerank(&index, &x).unwrap_err().to_string().contains("rerank_ids"));

    let candidates = index.candidates(query.view(), 60, None, &()).unwrap();
    let ids: Vec<i64> = (0..60).rev().chain([1000]).collect();
    let rows = Array2::from_shape_fn((61, 4), |(i, j)| if i < 60 { x[[59 - i, j]] } else { f32::NAN });
    let hits = candidates.rerank_by_id(query.view(), (&rows.view(), &ids), 60, &()).unwrap();
    assert_eq!(hits.scores, all.scores);
    for (&id, &score) in hits.positions.iter().zip(&hits.scores) {
        assert!((x.row(id as usize).dot(&query.row(0)) - score).abs() < 1e-4, "{id}");
    }
    for (ids, what) in
        [((1..62).collect::<Vec<_>>(), "lacks 0"), (vec![5; 61], "5 twice"), (vec![1], "1 entries")]
    {
        let error = candidates.rerank_by_id(query.view(), (&rows.view(), &ids), 60, &()).unwrap_err();
        assert!(error.to_string().contains(what), "{error}");
    }
    index.clear().unwrap();
    index.add(&x.view(), None, &()).unwrap();
    rerank(&index, &x).unwrap();
}

#[test]
fn ranges_of_ids_have_any_bounds_and_steps() {
    let mut index = Index::new(model());
    index.add_codes(codes(200).view(), None, None, &()).unwrap();
    index.add_codes(codes(2).view(), Some(&[i64::MAX - 1, i64::MAX]), None, &()).unwrap();
    for (range, step) in [
        (0..=199, 1),
        (5..=150, 7),
        (0..=i64::MAX, 1),
        (1..=i64::MAX, 1 << 62),
        (i64::MIN..=i64::MAX, 2),
        (i64::MAX..=i64::MAX, u64::MAX),
    ] {
        let allows = |id: i64| {
            range.contains(&id) && (i128::from(id) - i128::from(*range.start())) % i128::from(step) == 0
        };
        let want = index.allow(allows, &()).unwrap();
        assert_eq!(index.allow_range(range.clone(), step, &()).unwrap(), want, "{range:?} {step}");
    }
    assert!(index.allow_range(0..=5, 0, &()).is_err());
    assert!(index.allow_ids(&[1], &|_, _| false).is_err());
}

#[test]
fn vectors_whose_square_is_beyond_f32_are_refused_for_euclidean_distances() {
    let mut x = vectors(40);
    let fitting = x.clone();
    x.row_mut(31).fill(1e20);
    x.row_mut(33).fill(2e19);
    for metric in [Metric::Euclidean, Metric::InnerProduct] {
        let mut index = Index::with(model(), Settings { metric, ..Settings::default() }).unwrap();
        index.add(&fitting.view(), None, &()).unwrap();
        let ids: Vec<i64> = (0..40).collect();
        let errors = [index.add(&x.view(), None, &()), index.update(&x.view(), &ids, &())];
        for error in errors {
            if metric == Metric::InnerProduct {
                error.unwrap();
                continue;
            }
            let error = error.unwrap_err();
            assert!(matches!(&error, crate::Error::Argument { name: "X", .. }), "{error}");
            assert_eq!(
                error.to_string(),
                "X row 31 is too large: its square is beyond float32; scale the vectors down"
            );
        }
    }
}
