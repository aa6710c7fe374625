use super::*;
use crate::Metric;
use crate::codebooks::{Codebooks, Selection};
use crate::model::Centroids;
use ndarray::{Array3, Axis, array};

fn index() -> Index {
    let codebooks = Codebooks::new(Array3::from_shape_fn((2, 4, 1), |(m, k, _)| (m * 4 + k) as f32)).unwrap();
    Index::new(Model::new(codebooks, Selection::Group))
}

pub(super) fn model() -> Model {
    let value = |(m, k, j): (usize, usize, usize)| ((m * 7 + k * 13 + j * 5) % 17) as f32 / 4.0 - 2.0;
    Model::new(Codebooks::new(Array3::from_shape_fn((3, 16, 4), value)).unwrap(), Selection::Group)
}

pub(super) fn codes(n: usize) -> Array2<u8> {
    Array2::from_shape_fn((n, 3), |(i, m)| ((i * 31 + m * i / 3 + m) % 16) as u8)
}

#[test]
fn ids_continue_after_the_largest() {
    let mut index = index();
    index.add_codes(array![[0, 0], [1, 1]].view(), None, None, &()).unwrap();
    assert_eq!(index.ids(), None);
    index.add_codes(array![[2, 2]].view(), Some(&[7]), None, &()).unwrap();
    index.add_codes(array![[3, 3]].view(), None, None, &()).unwrap();
    assert_eq!(index.ids().as_deref(), Some(&[0, 1, 7, 8][..]));
    let hits = index.search(array![[1.0]].view(), 5, None, &()).unwrap();
    assert_eq!(hits.positions, array![[8, 7, 1, 0, -1]]);
    assert_eq!(index.reconstruct(&[7, 0, 7], &()).unwrap(), array![[8.0], [4.0], [8.0]]);
}

#[test]
fn what_does_not_fit_is_refused_and_changes_nothing() {
    let mut index = index();
    index.add_codes(array![[0, 0], [1, 1]].view(), Some(&[5, 3]), None, &()).unwrap();
    let one = array![[0, 0]];
    for ids in [&[3][..], &[-1], &[], &[1, 2]] {
        assert!(index.add_codes(one.view(), Some(ids), None, &()).is_err(), "{ids:?}");
    }
    assert!(index.add_codes(array![[0, 0], [0, 0]].view(), Some(&[9, 9]), None, &()).is_err());
    assert!(index.add_codes(array![[0, 4]].view(), None, None, &()).is_err());
    assert!(index.add_codes(array![[0]].view(), None, None, &()).is_err());
    assert!(index.add_codes(one.view(), None, Some(&[1.0]), &()).is_err());
    assert!(index.remove(&[5, 4], &()).is_err());
    assert_eq!((index.len(), index.ids().as_deref()), (2, Some(&[5, 3][..])));
    assert!(index.reconstruct(&[4], &()).is_err());
}

#[test]
fn scores_are_those_of_the_decoded_vectors() {
    let queries = array![[1.0f32, -0.5, 2.0, 0.25], [0.0, 0.0, 0.0, 0.0], [-3.0, 1.0, 0.5, 2.0]];
    for metric in Metric::ALL {
        for exact_norms in [true, false] {
            let settings = Settings { metric, scale: false, exact_norms, residuals: false };
            let mut index = Index::with(model(), settings).unwrap();
            // In pieces, the later ones with norms beyond those of the first.
            for piece in codes(300).axis_chunks_iter(Axis(0), 7) {
                index.add_codes(piece, None, None, &()).unwrap();
            }
            let hits = index.search(queries.view(), 300, None, &()).unwrap();
            let decoded = index.reconstruct(&(0..300).collect::<Vec<_>>(), &()).unwrap();
            let tolerance = if metric == Metric::InnerProduct { 1e-4 } else { 1e-6 };
            for (q, query) in queries.outer_iter().enumerate() {
                let mut seen = vec![false; 300];
                for (&id, &score) in hits.positions.row(q).iter().zip(hits.scores.row(q)) {
                    let want =
                        metric.score(query.as_slice().unwrap(), decoded.row(id as usize).as_slice().unwrap());
                    assert!(
                        (f64::from(score) - want).abs() <= tolerance * want.abs().max(1.0),
                        "{metric:?} {exact_norms}: {score} {want}"
                    );
                    seen[id as usize] = true;
                }
                assert!(seen.into_iter().all(|seen| seen));
                assert!(hits.scores.row(q).iter().is_sorted_by(|a, b| a >= b));
            }
        }
    }
}

#[test]
fn removed_vectors_are_gone_and_the_others_stay_in_order() {
    for metric in Metric::ALL {
        let settings = Settings { metric, ..Settings::default() };
        let mut index = Index::with(model(), settings).unwrap();
        index.add_codes(codes(200).view(), None, None, &()).unwrap();
        let removed: Vec<i64> = (0..200).filter(|i| i % 3 == 0).collect();
        assert_eq!(index.remove(&removed, &()).unwrap(), 67);
        index.add_codes(codes(200).view().slice(s![..5, ..]), None, None, &()).unwrap();
        let kept: Vec<i64> = (0..200).filter(|i| i % 3 != 0).chain(200..205).collect();
        assert_eq!(index.ids().as_deref(), Some(&kept[..]));
        let rows: Vec<usize> = kept.iter().map(|&id| id as usize % 200).collect();
        let mut plain = Index::with(model(), settings).unwrap();
        plain.add_codes(codes(200).select(Axis(0), &rows).view(), Some(&kept), None, &()).unwrap();
        let query = array![[1.0f32, -0.5, 2.0, 0.25]];
        let (a, b) = (index.search(query.view(), 9, None, &()), plain.search(query.view(), 9, None, &()));
        assert_eq!(a.unwrap().positions, b.unwrap().positions);
    }
}

#[test]
fn filters_and_merging() {
    let mut index = Index::new(model());
    index.add_codes(codes(150).view(), None, None, &()).unwrap();
    let mut other = Index::new(model());
    other.add_codes(codes(100).view(), Some(&(1000..1100).collect::<Vec<_>>()), None, &()).unwrap();
    index.merge(&other, &()).unwrap();
    assert!(index.merge(&other, &()).is_err());
    assert_eq!(index.len(), 250);
    let query = array![[1.0f32, -0.5, 2.0, 0.25]];
    let all = index.search(query.view(), 250, None, &()).unwrap().positions;
    for allowed in [
        index.allow_ids(&[3, 1003, 77, 12345], &()).unwrap(),
        index.allow(|id| [3, 1003, 77].contains(&id), &()).unwrap(),
    ] {
        let hits = index.search(query.view(), 5, Some(&allowed), &()).unwrap();
        let want: Vec<i64> =
            all.iter().copied().filter(|id| [3, 1003, 77].contains(id)).chain([-1, -1]).collect();
        assert_eq!(hits.positions.row(0).to_vec(), want);
    }
}

#[test]
fn a_scale_gives_approximations_the_right_length() {
    let settings = Settings { scale: true, ..Settings::default() };
    let x = Array2::from_shape_fn((100, 4), |(i, j)| ((i * 7 + j * 3) % 11) as f32 - 4.9);
    let mut index = Index::with(model(), settings).unwrap();
    index.add(&x.view(), None, &()).unwrap();
    assert_eq!(index.bytes_per_vector(), 3, "three codes of 5 codewords in two bytes, and a level");
    let scales = index.model().scales(&x.view(), index.codes().view(), &()).unwrap();
    for row in (0..100).filter(|&row| (0.25..4.0).contains(&scales[row])) {
        let hits = index.search(x.slice(s![row..=row, ..]), 100, None, &()).unwrap();
        let at = hits.positions.iter().position(|&id| id == row as i64).unwrap();
        let square = crate::vectors::metric::squared_norm(x.row(row).as_slice().unwrap());
        assert!((f64::from(hits.scores[[0, at]]) / square - 1.0).abs() < 0.01);
    }
    let mut copy = Index::with(model(), settings).unwrap();
    copy.merge(&index, &()).unwrap();
    let hits = |index: &Index| index.search(x.view(), 20, None, &()).unwrap();
    assert_eq!(hits(&copy), hits(&index));
}

#[test]
fn its_encoder_is_made_once() {
    let mut index = Index::new(model());
    let x = Array2::from_shape_fn((100, 4), |(i, j)| ((i * 7 + j * 3) % 11) as f32 - 4.9);
    index.add(&x.view(), None, &()).unwrap();
    let first: *const dyn Encode = index.encoder().unwrap();
    let mut copy = index.clone();
    copy.add(&x.view(), None, &()).unwrap();
    assert!(std::ptr::eq(first, copy.encoder().unwrap()));
}

#[test]
fn the_largest_residual_follows_what_is_added_and_removed() {
    let settings = Settings { residuals: true, ..Settings::default() };
    let mut index = Index::with(model(), settings).unwrap();
    let residuals: Vec<f32> = (0..200).map(|i| (i * 37 % 200) as f32).collect();
    index.add_codes(codes(200).view(), None, Some(&residuals), &()).unwrap();
    assert_eq!(index.largest, 199.0);
    let mut other = Index::with(model(), settings).unwrap();
    other.add_codes(codes(1).view(), Some(&[777]), Some(&[500.0]), &()).unwrap();
    index.merge(&other, &()).unwrap();
    assert_eq!(index.largest, 500.0);
    index.remove(&[777], &()).unwrap();
    assert_eq!(index.largest, 199.0);
}

#[test]
fn sets_of_queries_and_all_above_a_score() {
    let queries = Array2::from_shape_fn((5, 4), |(i, j)| ((i * 5 + j * 3) % 7) as f32 - 3.1);
    for settings in [
        Settings::default(),
        Settings { scale: true, ..Settings::default() },
        Settings { residuals: true, ..Settings::default() },
        Settings { metric: Metric::Cosine, ..Settings::default() },
        Settings { metric: Metric::Euclidean, ..Settings::default() },
        Settings { metric: Metric::Euclidean, exact_norms: false, ..Settings::default() },
    ] {
        let mut index = Index::with(model(), settings).unwrap();
        let residuals = settings.residuals.then(|| vec![1.0; 300]);
        let ids: Vec<i64> = (0..300).map(|i| 2 * i + 7).collect();
        index.add_codes(codes(300).view(), Some(&ids), residuals.as_deref(), &()).unwrap();
        let starts = [0, 3, 3, 5, 10, 11];
        let sets = [7, 9, 9, 1, 603, 605, 7, 9, 11, 13, 15];
        let all = index.search(queries.view(), 300, None, &()).unwrap();
        let only = index.allow_each(&starts, &sets, &()).unwrap();
        let except = only.clone().inverse().unwrap();
        for (allowed, is_only) in [(&only, true), (&except, false)] {
            let hits = index.search(queries.view(), 300, Some(allowed), &()).unwrap();
            let floors: Vec<f32> = all.scores.column(40).to_vec();
            let above = index.search_above(queries.view(), &floors, Some(allowed), &()).unwrap();
            for query in 0..5 {
                let set = &sets[starts[query]..starts[query + 1]];
                let want = all.positions.row(query).into_iter().zip(all.scores.row(query));
                let want =
                    want.filter(|(id, _)| set.contains(id) == is_only).map(|(&id, &score)| (id, score));
                let want: Vec<(i64, f32)> = want.collect();
                let got = hits.positions.row(query).into_iter().zip(hits.scores.row(query));
                let got: Vec<(i64, f32)> = got.map(|(&id, &score)| (id, score)).collect();
                assert_eq!(got[..want.len()], want[..]);
                assert!(got[want.len()..].iter().all(|&(id, score)| id == -1 && score == f32::NEG_INFINITY));
                let want: Vec<_> = want.into_iter().filter(|&(_, score)| score >= floors[query]).collect();
                let found = above.starts[query]..above.starts[query + 1];
                let got = above.ids[found.clone()].iter().copied().zip(above.scores[found].iter().copied());
                assert_eq!(got.collect::<Vec<_>>(), want);
            }
        }
        assert!(index.search(queries.slice(s![..0, ..]), 3, Some(&only), &()).is_ok());
        let fewer = index.allow_each(&starts[..3], &sets[..3], &()).unwrap();
        assert!(index.search(queries.view(), 3, Some(&fewer), &()).is_err());
        assert!(index.allow_each(&starts, &sets[1..], &()).is_err());
        assert!(index.search_above(queries.view(), &[f32::NAN; 5], None, &()).is_err());
        assert!(index.search_above(queries.view(), &[0.0; 4], None, &()).is_err());
        let both = index.allow_ids(&[7, 11], &()).unwrap().and(except.clone()).unwrap();
        let hits = index.search(queries.view(), 5, Some(&both), &()).unwrap();
        assert_eq!((hits.positions[[0, 0]], hits.positions[[0, 1]]), (11, -1));
        assert!(only.clone().and(only.clone()).is_err());
    }
}

#[test]
fn keys_follow_their_vectors() {
    let mut index = Index::new(model()).with_keys().unwrap();
    let names = |range: std::ops::Range<usize>| range.map(|i| format!("n{i}")).collect::<Vec<_>>();
    let x = Array2::from_shape_fn((200, 4), |(i, j)| ((i * 7 + j * 3) % 11) as f32 - 4.9);
    index.add_keyed(&x.view(), &names(0..200), &()).unwrap();
    assert!(index.add(&x.view(), None, &()).is_err());
    assert!(index.add_keyed(&x.view(), &names(100..300), &()).is_err());
    assert!(index.add_keyed(&x.view(), &names(200..399), &()).is_err());
    assert!(index.clone().with_keys().is_err());
    let gone: Vec<String> = (0..200).step_by(3).map(|i| format!("n{i}")).collect();
    index.remove(&index.ids_of(&gone).unwrap(), &()).unwrap();
    assert!(index.ids_of(&gone[..1]).is_err());
    index.add_keyed(&x.slice(s![..1, ..]), &["n0"], &()).unwrap();
    let mut other = Index::new(model()).with_keys().unwrap();
    other.add_keyed(&x.slice(s![..2, ..]), &["é", ""], &()).unwrap();
    index.merge(&other, &()).unwrap();
    assert!(index.merge(&other, &()).is_err());
    let mut plain = Index::new(model());
    plain.add(&x.view(), None, &()).unwrap();
    assert!(index.merge(&plain, &()).is_err());
    let want: Vec<String> = (0..200).filter(|i| i % 3 > 0).map(|i| format!("n{i}")).collect();
    let want: Vec<&str> = want.iter().map(String::as_str).chain(["n0", "é", ""]).collect();
    let bytes = index.to_bytes(&()).unwrap();
    for index in [&index, &Index::from_bytes(&bytes, &()).unwrap()] {
        assert_eq!(index.keys().collect::<Vec<_>>(), want);
        let ids = index.ids_of(&want).unwrap();
        assert!(ids.iter().zip(&want).all(|(&id, key)| index.key(id) == Some(key)));
        assert_eq!((index.key(0), index.key(-1)), (None, None));
    }
}

#[test]
fn lists_of_whole_vectors_choose_and_add_nothing() {
    let queries = array![[1.0f32, -0.5, 2.0, 0.25], [9.0, 0.0, 0.0, 0.0], [-3.0, 1.0, 0.5, 2.0]];
    let centroids = array![[5.0f32, 0.0, 0.0, 0.0], [0.0, 0.0, 5.0, 0.0], [-5.0, 5.0, 0.0, 5.0]];
    let lists: Vec<u32> = (0..300).map(|i| i % 3).collect();
    for metric in Metric::ALL {
        let settings = Settings { metric, ..Settings::default() };
        let mut divided = model();
        divided.centroids = Some(Centroids::new(centroids.clone()).unwrap().of_whole());
        let (mut divided, mut plain) =
            (Index::with(divided, settings).unwrap(), Index::with(model(), settings).unwrap());
        plain.add_codes(codes(300).view(), None, None, &()).unwrap();
        let change = divided.prepare_add_codes_in(codes(300).view(), Some(&lists), None, None, &()).unwrap();
        divided.apply(change).unwrap();
        let ids: Vec<i64> = (0..300).collect();
        assert_eq!(divided.reconstruct(&ids, &()).unwrap(), plain.reconstruct(&ids, &()).unwrap());
        let want = plain.search(queries.view(), 300, None, &()).unwrap();
        for index in [&divided, &Index::from_bytes(&divided.to_bytes(&()).unwrap(), &()).unwrap()] {
            assert_eq!(index.search_within(queries.view(), 300, Reach::All.into(), &()).unwrap(), want);
            let one = index.search_within(queries.view(), 9, Reach::Lists(1).into(), &()).unwrap();
            for (row, list) in one.positions.outer_iter().zip([1, 0, 2]) {
                assert!(row.iter().all(|position| position % 3 == list), "{metric:?}");
            }
        }
    }
}
