package jetstream

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// subjects lists the subjects of a stream that have messages, sorted within a
// page of the server (100,000). After an error it ends.
func (c *Conn) subjects(ctx context.Context, stream, filter string) iter.Seq2[subjectCount, error] {
	return func(yield func(subjectCount, error) bool) {
		for seen := 0; ; {
			page, total, err := c.subjectsPage(ctx, stream, filter, seen)
			if err != nil {
				yield(subjectCount{}, fmt.Errorf("list the subjects of %s: %w", stream, err))
				return
			}
			for _, subject := range page {
				if !yield(subject, nil) {
					return
				}
			}
			if seen += len(page); len(page) == 0 || seen >= total {
				return
			}
		}
	}
}

func (c *Conn) subjectsPage(ctx context.Context, stream, filter string, offset int) (page []subjectCount, total int, err error) {
	body, err := json.Marshal(map[string]any{"subjects_filter": filter, "offset": offset})
	if err != nil {
		return nil, 0, err
	}
	m, err := c.replies.request(ctx, c.timeout, &nats.Msg{Subject: "$JS.API.STREAM.INFO." + stream, Data: body})
	if err != nil {
		return nil, 0, err
	}
	var answer struct {
		Error *natsjs.APIError `json:"error"`
		Total int              `json:"total"`
		State struct {
			Subjects map[string]uint64 `json:"subjects"`
		} `json:"state"`
	}
	if err := json.Unmarshal(m.Data, &answer); err != nil {
		return nil, 0, err
	}
	if answer.Error != nil {
		return nil, 0, translateAPI(answer.Error)
	}
	for _, subject := range slices.Sorted(maps.Keys(answer.State.Subjects)) {
		page = append(page, subjectCount{subject, answer.State.Subjects[subject]})
	}
	return page, answer.Total, nil
}

// subjectCount is a subject and how many messages a stream has of it.
type subjectCount struct {
	subject string
	count   uint64
}
