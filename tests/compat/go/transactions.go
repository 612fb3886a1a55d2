// A job of tests/support/transactions.py for franz-go. The offsets are those of a source topic that
// a transactional session consumes.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

type transactionsJob struct {
	Bootstrap string
	Topic     string
	Source    string
	Group     string
	Count     int
}

func (j transactionsJob) options() []kgo.Opt {
	return []kgo.Opt{
		kgo.SeedBrokers(j.Bootstrap),
		kgo.TransactionalID(j.Group),
		kgo.DefaultProduceTopic(j.Topic),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
	}
}

func (j transactionsJob) records(kind string) []*kgo.Record {
	records := make([]*kgo.Record, j.Count)
	for i := range records {
		value := fmt.Sprintf("%s%d", kind, i)
		records[i] = &kgo.Record{Partition: int32(i % 2), Value: []byte(value)}
	}
	return records
}

// The commit of the source's three records, an abort, another commit.
func (j transactionsJob) run(ctx context.Context, session *kgo.GroupTransactSession) {
	for _, kind := range []string{"commit", "abort", "again"} {
		check(session.Begin())
		for left := 3; kind == "commit" && left > 0; {
			fetches := session.PollFetches(ctx)
			check(fetches.Err())
			left -= fetches.NumRecords()
		}
		check(session.ProduceSync(ctx, j.records(kind)...).FirstErr())
		committed, err := session.End(ctx, kgo.TransactionEndTry(kind != "abort"))
		check(err)
		if committed != (kind != "abort") {
			check(errors.New(kind + " ended otherwise"))
		}
	}
}

func transactions() {
	var j transactionsJob
	check(json.NewDecoder(os.Stdin).Decode(&j))
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	session, err := kgo.NewGroupTransactSession(append(
		j.options(),
		kgo.ConsumerGroup(j.Group),
		kgo.ConsumeTopics(j.Source),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.RequireStableFetchOffsets(),
	)...)
	check(err)
	j.run(ctx, session)

	second, err := kgo.NewClient(j.options()...)
	check(err)
	defer second.Close()
	_, _, err = second.ProducerID(ctx)
	check(err)
	check(session.Begin())
	err = session.ProduceSync(ctx, j.records("fenced")...).FirstErr()
	var fenced *kerr.Error
	if !errors.As(err, &fenced) {
		check(fmt.Errorf("not fenced: %w", err))
	}
	fmt.Println(fenced.Message)
}
