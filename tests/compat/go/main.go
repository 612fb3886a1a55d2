// A job of tests/support/round_trip.py for franz-go. What it produced itself it reads in a group:
// one member reads some, commits and leaves, and another goes on.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"sort"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const group = "franz-go"

var codecs = map[string]kgo.CompressionCodec{
	"none":   kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
}

type header struct {
	name    string
	content []byte
}

func (h *header) UnmarshalJSON(text []byte) error {
	return json.Unmarshal(text, &[]any{&h.name, &h.content})
}

func (h header) MarshalJSON() ([]byte, error) {
	return json.Marshal([]any{h.name, h.content})
}

type row struct {
	Partition int32    `json:"partition"`
	Offset    int64    `json:"offset"`
	Timestamp int64    `json:"timestamp"`
	Key       []byte   `json:"key"`
	Value     []byte   `json:"value"`
	Headers   []header `json:"headers"`
}

type job struct {
	Bootstrap  string
	Start      int64
	Partitions int32
	Topics     []struct {
		Name    string
		Codec   string
		Produce bool
	}
	Rows []row
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func (j job) client(options ...kgo.Opt) *kgo.Client {
	client, err := kgo.NewClient(append(options, kgo.SeedBrokers(j.Bootstrap))...)
	check(err)
	return client
}

func (j job) produce(ctx context.Context, topic, codec string) {
	client := j.client(
		kgo.DefaultProduceTopic(topic),
		kgo.ProducerBatchCompression(codecs[codec]),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerLinger(20*time.Millisecond),
	)
	defer client.Close()
	records := make([]*kgo.Record, len(j.Rows))
	for i, r := range j.Rows {
		at := time.UnixMilli(r.Timestamp)
		record := &kgo.Record{Partition: r.Partition, Timestamp: at, Key: r.Key, Value: r.Value}
		for _, h := range r.Headers {
			record.Headers = append(record.Headers, kgo.RecordHeader{Key: h.name, Value: h.content})
		}
		records[i] = record
	}
	check(client.ProduceSync(ctx, records...).FirstErr())
	for i, record := range records {
		if record.Offset != j.Rows[i].Offset {
			log.Fatalf("%s: told offset %d, not %d", topic, record.Offset, j.Rows[i].Offset)
		}
	}
}

// The sum of the end offsets.
func (j job) count(ctx context.Context, topics ...string) int {
	client := j.client()
	defer client.Close()
	ends, err := kadm.NewClient(client).ListEndOffsets(ctx, topics...)
	check(err)
	check(ends.Error())
	sum := 0
	ends.Each(func(end kadm.ListedOffset) { sum += int(end.Offset) })
	return sum
}

// Polls until there are so many rows; how many there were.
func (j job) read(ctx context.Context, client *kgo.Client, count int, found map[string][]row) int {
	seen := 0
	for seen < count {
		fetches := client.PollFetches(ctx)
		check(fetches.Err())
		fetches.EachRecord(func(r *kgo.Record) {
			seen++
			if r.Offset < j.Start {
				return
			}
			headers := []header{}
			for _, h := range r.Headers {
				headers = append(headers, header{h.Key, h.Value})
			}
			at := r.Timestamp.UnixMilli()
			one := row{r.Partition, r.Offset, at, r.Key, r.Value, headers}
			found[r.Topic] = append(found[r.Topic], one)
		})
	}
	return seen
}

func (j job) readInGroup(ctx context.Context, topics []string, found map[string][]row) {
	left := j.count(ctx, topics...)
	for _, enough := range []func() int{func() int { return left / 2 }, func() int { return left }} {
		client := j.client(
			kgo.ConsumerGroup(group),
			kgo.ConsumeTopics(topics...),
			kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
			kgo.DisableAutoCommit(),
		)
		left -= j.read(ctx, client, enough(), found)
		check(client.CommitUncommittedOffsets(ctx))
		client.Close()
	}
	if left != 0 {
		log.Fatalf("%d records were read twice", -left)
	}
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == "transactions" {
		transactions()
		return
	}
	var j job
	check(json.NewDecoder(os.Stdin).Decode(&j))
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	own := []string{}
	found := map[string][]row{}
	for _, topic := range j.Topics {
		if topic.Produce {
			j.produce(ctx, topic.Name, topic.Codec)
			own = append(own, topic.Name)
			continue
		}
		places := map[int32]kgo.Offset{}
		for p := int32(0); p < j.Partitions; p++ {
			places[p] = kgo.NewOffset().At(j.Start)
		}
		client := j.client(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic.Name: places}))
		j.read(ctx, client, j.count(ctx, topic.Name)-int(j.Start)*len(places), found)
		client.Close()
	}
	j.readInGroup(ctx, own, found)
	for _, rows := range found {
		sort.Slice(rows, func(a, b int) bool {
			if rows[a].Partition != rows[b].Partition {
				return rows[a].Partition < rows[b].Partition
			}
			return rows[a].Offset < rows[b].Offset
		})
	}
	answer, err := json.Marshal(found)
	check(err)
	fmt.Println(string(answer))
}
